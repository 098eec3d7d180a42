#!/usr/bin/env python3
"""The cost of the roll call: nanoseconds that it adds to a call, and what a training step costs with it and without.

  bench/roll_call.py [--most 40] [--steps 60] [--out bench/results/roll_call.json] [--replace]

Runs with and without an agent (--guard default, off) come in pairs, in turn first, and are compared in CPU seconds of all
processes. Pairs are made until the 95 % interval of the mean ratio lies below 1.01, or above, so that the figure says which;
after --most of them it ends with 1. Python's own library only.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import provenance

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
sys.path.insert(0, str(ROOT / "tests"))
from small_job import make_rows  # noqa: E402

FEWEST, BAR = 6, 1.01
# Student's t at 97.5 %, by degrees of freedom; between two, the smaller's holds.
STUDENT = {5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0}


def cpu_seconds(words):
    """CPU-seconds of a command with all its processes, the launcher and its agent included."""
    before = os.times()
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    after = os.times()
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def interval(ratios):
    """Mean ratio and its 95 % interval, of the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    t = STUDENT[max(known for known in STUDENT if known <= len(logs) - 1)]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(mean + sign * half) for sign in (0, -1, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--steps", type=int, default=60)
    provenance.add_flags(parser, "roll_call.json")
    args = parser.parse_args()
    provenance.check_place(args)
    subprocess.run(["ninja", "-C", str(BIN.parent), "roll_call_cost"], check=True, stdout=subprocess.DEVNULL)
    text = subprocess.run([str(BIN / "roll_call_cost")], check=True, capture_output=True, text=True).stdout
    print(text, end="", flush=True)
    rows = [json.loads(line) for line in text.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run([str(BIN / "lockstep"), "init", "--family", "llava", "--size", "demo", "--output_dir", str(folder / "m")],
                       check=True, stdout=subprocess.DEVNULL)
        data = make_rows(folder, count=96)

        def run(guard):
            out = folder / guard
            seconds = cpu_seconds([BIN / "lockstep", "sft", "--model", folder / "m", "--dataset", data, "--output_dir", out,
                                   "--add_version", "false", "--max_steps", args.steps, "--nproc", 2, "--deepspeed", "zero3",
                                   "--guard", guard, "--save_strategy", "no", "--logging_steps", 1000, "--report_to", "none",
                                   "--per_device_train_batch_size", 4, "--overwrite_output_dir", "true"])
            return seconds

        ratios, decided = [], False
        while len(ratios) < args.most and not decided:
            seconds = {guard: run(guard) for guard in (("off", "default"), ("default", "off"))[len(ratios) % 2]}
            ratios.append(seconds["default"] / seconds["off"])
            line = f"pair {len(ratios)}: {seconds['default']:.2f} / {seconds['off']:.2f} CPU s = {ratios[-1]:.4f}"
            if len(ratios) >= FEWEST:
                mean, low, high = interval(ratios)
                decided = high < BAR or low > BAR
                line += f"   mean {mean:.4f}, 95 % {low:.4f} to {high:.4f}"
            print(line, flush=True)
    mean, low, high = interval(ratios)
    verdict = "below" if high < BAR else "above" if low > BAR else "not decided beside"
    print(f"a run with the roll call costs {mean:.4f} of one without, 95 % interval {low:.4f} to {high:.4f}: {verdict} {BAR}")
    rows.append({"case": f"a run of {args.steps} steps", "ratio": mean, "interval": [low, high], "pairs": ratios})
    provenance.write(args, rows)
    return 0 if decided else 1


if __name__ == "__main__":
    sys.exit(main())
