#!/usr/bin/env python3
"""Fault-free runs that look suspicious: a rank ten times slower, waits for data, a long pause in compute, uneven nested
data. None may be ended, and no value may be wrong; notices are allowed. Ends with 1 when one was.

    false_alarms.py [--runs 100] [--jobs 20] [--seed N]
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from processes import Run  # noqa: E402
from worker_rows import WORKER  # noqa: E402

LONGEST = 300
DATA_STALL, COMPUTE_PAUSE = 30, 60


def words_of(chance):
    """One kind of slowness or all of them, at a world size and a place of chance."""
    ranks = chance.choice([2, 3, 4, 8])
    kind = chance.choice(["slow", "data", "forward", "uneven", "all"])
    words = [WORKER, "--nproc", ranks, "--culprit", chance.randrange(ranks), "--steps", 40, "--uneven"]
    if kind in ("slow", "all"):
        words += ["--slow", 10]
    if kind in ("data", "all"):
        words += ["--pause_data", DATA_STALL]
    if kind in ("forward", "all"):
        words += ["--pause_forward", COMPUTE_PAUSE]
    return kind, ranks, words


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LOCKSTEP_SEED") or random.randrange(10**6)))
    args = parser.parse_args()
    print(f"seed {args.seed} (--seed)")
    chance, lock, begun = random.Random(args.seed), threading.Lock(), time.monotonic()
    counts = {"ended": 0, "wrong": 0, "notices": 0}
    with tempfile.TemporaryDirectory(prefix="lockstep_false_alarms_") as root:

        def one(number):
            folder = Path(root) / str(number)
            folder.mkdir()
            kind, ranks, words = plans[number]
            with Run(folder) as run:
                run.start(words + ["--out", folder])
                whole = run.wait(LONGEST) and run.codes == [0]
            with lock:
                counts["ended"] += not whole
                counts["wrong"] += "WRONG" in run.text
                counts["notices"] += run.text.count(": notice: ")
                if not whole or "WRONG" in run.text:
                    print(f"run {number} ({kind}, {ranks} ranks): codes {run.codes}\n{run.text}", flush=True)

        plans = [words_of(chance) for _ in range(args.runs)]
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(one, range(args.runs)))
    kinds = {kind: sum(plan[0] == kind for plan in plans) for kind in sorted({plan[0] for plan in plans})}
    print(
        f"{args.runs} runs without a fault in {time.monotonic() - begun:.0f} s ({kinds}): {counts['ended']} ended, "
        f"{counts['wrong']} wrong, {counts['notices']} notices"
    )
    return 1 if counts["ended"] or counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
