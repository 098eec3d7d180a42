#!/usr/bin/env python3
"""The cost of the roll call: nanoseconds that it adds to a call, and its part of a training run.

  bench/roll_call.py [--pairs 8] [--steps 60] [--out bench/results/roll_call.json] [--replace]

roll_call_cost measures on Communicator, batch by batch beside the transport alone, what a recorded and watched call takes more.
What a run makes of it: its calls (communication.json) times the upper quartile of that, on every rank, and the CPU seconds of
the launcher, which is the agent, over those that it takes with --guard off (runs of both kinds in pairs, in turn first);
divided by the CPU seconds of all processes. Ends with 1 unless the 95 % interval of that part lies below 1 %. CPU seconds of
whole runs stand beside it: they vary by more than what is asked. Python's own library only.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import provenance

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
sys.path.insert(0, str(ROOT / "tests"))
from small_job import make_rows  # noqa: E402

BAR = 0.01
RANKS = 2
# Student's t at 97.5 %, by degrees of freedom; between two, the smaller's holds.
STUDENT = {5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0}


def own_seconds(pid):
    """CPU seconds of a process without its children, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def cpu_seconds(words):
    """CPU seconds of a command: of all its processes, and of the first one as last seen."""
    before = os.times()
    process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    first = 0.0
    while process.poll() is None:
        try:
            first = max(first, own_seconds(process.pid))
        except OSError:
            pass
        time.sleep(0.02)
    after = os.times()
    text = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{text}")
    return after.children_user + after.children_system - before.children_user - before.children_system, first


def interval(values):
    """Mean and its 95 % interval."""
    mean = statistics.fmean(values)
    t = STUDENT[max(known for known in STUDENT if known <= max(5, len(values) - 1))]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return [mean, mean - half, mean + half]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
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
            whole, launcher = cpu_seconds([
                BIN / "lockstep", "sft", "--tuner_type", "full", "--model", folder / "m", "--dataset", data, "--output_dir", out, "--add_version", "false",
                "--max_steps", args.steps, "--nproc", RANKS, "--deepspeed", "zero3", "--guard", guard, "--save_strategy", "no",
                "--logging_steps", 1000, "--report_to", "none", "--per_device_train_batch_size", 4, "--overwrite_output_dir", "true"])
            calls = sum(kind["calls"] for kind in json.loads((out / "communication.json").read_text())["kinds"])
            return {"whole": whole, "launcher": launcher, "calls": calls}

        most_ns = next(row for row in rows if row["case"] == "recorded and watched")["quartiles"][1]
        parts, ratios = [], []
        for pair in range(args.pairs):
            seen = {guard: run(guard) for guard in (("off", "default"), ("default", "off"))[pair % 2]}
            on, off = seen["default"], seen["off"]
            parts.append((on["calls"] * RANKS * most_ns / 1e9 + on["launcher"] - off["launcher"]) / on["whole"])
            ratios.append(on["whole"] / off["whole"])
            print(f"pair {pair + 1}: {on['calls']} calls a rank, launcher {on['launcher']:.3f} and {off['launcher']:.3f} s, all "
                  f"{on['whole']:.2f} and {off['whole']:.2f} s: {100 * parts[-1]:.2f} %", flush=True)
    part, whole = interval(parts), interval(ratios)
    decided = part[2] < BAR
    print(f"the roll call takes {100 * part[0]:.2f} % of a run, 95 % interval {100 * part[1]:.2f} to {100 * part[2]:.2f}: "
          f"{'below' if decided else 'not shown below'} {100 * BAR:.0f} %")
    print(f"whole runs, with and without: {whole[0]:.3f}, 95 % interval {whole[1]:.3f} to {whole[2]:.3f}")
    rows.append({"case": f"a run of {args.steps} steps", "part": part[0], "interval": part[1:], "whole_runs": ratios})
    provenance.write(args, rows)
    return 0 if decided else 1


if __name__ == "__main__":
    sys.exit(main())
