#!/usr/bin/env python3
"""The cost of the roll call: nanoseconds a call, and CPU-seconds a training step with it and without, side by side.

Usage: bench/roll_call.py [--reps 5] [--steps 60]      prints one line a figure and the ratio; Python's own library only.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
sys.path.insert(0, str(ROOT / "tests"))
from small_job import make_rows  # noqa: E402


def cpu_seconds(words):
    """CPU-seconds of a command with all its processes, the launcher and its agent included."""
    before = os.times()
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    after = os.times()
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    subprocess.run(["ninja", "-C", str(BIN.parent), "roll_call_cost"], check=True, stdout=subprocess.DEVNULL)
    for line in subprocess.run([str(BIN / "roll_call_cost")], check=True, capture_output=True, text=True).stdout.splitlines():
        print(line)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run([str(BIN / "lockstep"), "init", "--family", "llava", "--size", "demo", "--output_dir", str(folder / "m")],
                       check=True, stdout=subprocess.DEVNULL)
        rows = make_rows(folder, count=96)

        def run(guard, steps):
            out = folder / f"{guard}-{steps}"
            seconds = cpu_seconds([BIN / "lockstep", "sft", "--model", folder / "m", "--dataset", rows, "--output_dir", out,
                                   "--add_version", "false", "--max_steps", steps, "--nproc", 2, "--deepspeed", "zero3",
                                   "--guard", guard, "--save_strategy", "no", "--logging_steps", 1000, "--report_to", "none",
                                   "--per_device_train_batch_size", 4])
            subprocess.run(["rm", "-rf", str(out)], check=True)
            return seconds

        ratios = []
        for rep in range(args.reps):
            step = {}
            for guard in (("off", "default") if rep % 2 == 0 else ("default", "off")):
                step[guard] = (run(guard, args.steps + 5) - run(guard, 5)) / args.steps
            ratios.append(step["default"] / step["off"])
            print(json.dumps({"rep": rep, "cpu_s_per_step": {k: round(v, 5) for k, v in step.items()}, "ratio": round(ratios[-1], 4)}),
                  flush=True)
        print(json.dumps({"ratio_median": round(statistics.median(ratios), 4), "ratio_spread": [round(min(ratios), 4), round(max(ratios), 4)]}))


if __name__ == "__main__":
    main()
