#!/usr/bin/env python3
"""Every fault at every world size, for real; writes docs/faults.md and ends with 1 when a bar is missed.

suite.py [--ranks 2,3,4,8] [--only ROW,…] [--jobs 3] [--no-write] [--quick] [--results DIR]

A run of all of it can be made in portions: what stands in --results is taken from there.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from end_rows import end_rows  # noqa: E402
from gpu_rows import gpu_rows  # noqa: E402
from network_rows import network_rows  # noqa: E402
from outcome import Outcome, judge  # noqa: E402
from pace_rows import pace_rows  # noqa: E402
from small_files import Files  # noqa: E402
from start_rows import start_rows  # noqa: E402
from story import ROOT  # noqa: E402
from table import document, summary  # noqa: E402
from worker_rows import worker_rows  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,3,4,8")
    parser.add_argument("--only", default="", help="rows by name, separated by commas")
    parser.add_argument("--fix-ranks", default="2,3", help="sizes at which fixes are tried")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="leave docs/faults.md as it is")
    parser.add_argument("--quick", action="store_true", help="without the fixes, and with time for a busy machine")
    parser.add_argument("--transport", default="auto", help="of the rows of fault_worker: auto, shm or gloo")
    parser.add_argument("--results", help="a folder of what came of each run: those that stand there are not made again")
    parser.add_argument("--keep", help="a folder for what the runs leave behind")
    return parser.parse_args()


def slack_of(args):
    """Other tests of a CI machine must not decide: the bars are for a run of their own."""
    return 5 if args.quick else 1


def all_rows(args):
    rows = start_rows() + end_rows() + pace_rows() + gpu_rows() + network_rows() + worker_rows()
    if args.only:
        names = args.only.split(",")
        missing = set(names) - {row.name for row in rows}
        if missing:
            sys.exit(f"suite.py: --only: there is no row {', '.join(sorted(missing))}")
        rows = [row for row in rows if row.name in names]
    return rows


def run_one(row, ranks, root, args, lock):
    folder = root / f"{row.name}-{ranks}"
    folder.mkdir(parents=True)
    row.transport = args.transport
    kept = Path(args.results) / f"{row.name}-{ranks}.json" if args.results else None
    if kept and kept.exists():
        outcome = Outcome(**json.loads(kept.read_text()))
    else:
        outcome = row.run(ranks, folder, fixes=ranks in args.fix_ranks)
        if kept:
            kept.write_text(json.dumps({**vars(outcome), "fix": outcome.fix and str(outcome.fix)}))
    checks = judge(outcome, row.expected, slack_of(args)) if not outcome.skipped else {}
    missed = [name for name, ok in checks.items() if ok is False]
    with lock:
        times = " ".join("-" if t is None else f"{t:.2f}" for t in (outcome.named, outcome.ended, outcome.gone))
        word = "skip" if outcome.skipped else "MISS" if missed else "ok"
        fix = {None: "", True: "fix ok", False: "fix FAILS"}[outcome.fixed]
        print(f"{word:4} {row.name:24} {ranks} ranks  {times:16} {fix:9} {', '.join(missed) or outcome.skipped}", flush=True)
        if missed:
            print("     | " + "\n     | ".join(outcome.text.splitlines()[-25:]), flush=True)
    return row, ranks, outcome, checks


def main():
    args = parse()
    args.fix_ranks = [] if args.quick else [int(size) for size in args.fix_ranks.split(",") if size]
    rows, sizes = all_rows(args), [int(size) for size in args.ranks.split(",")]
    root = Path(args.keep or tempfile.mkdtemp(prefix="lockstep_faults_"))
    if args.results:
        Path(args.results).mkdir(parents=True, exist_ok=True)
    begun, lock = time.monotonic(), threading.Lock()
    try:
        if any(hasattr(row, "files") for row in rows):
            files = Files(root / "files")
            for row in rows:
                row.files = files
        with ThreadPoolExecutor(args.jobs) as pool:
            results = list(
                pool.map(
                    lambda one: run_one(one[0], one[1], root, args, lock),
                    [(row, size) for size in sizes for row in rows],
                )
            )
    finally:
        if not args.keep:
            shutil.rmtree(root, ignore_errors=True)
    skipped = sum(bool(outcome.skipped) for _, _, outcome, _ in results)
    print(f"{len(rows)} rows, {len(results)} runs in {time.monotonic() - begun:.0f} s, {skipped} skipped")
    held = True
    for what, bar, measured, good in summary(results, slack_of(args)):
        held = held and good
        print(f"{'ok  ' if good else 'MISS'} {what}: {measured} (bar: {bar})")
    if not args.no_write:
        (ROOT / "docs" / "faults.md").write_text(document(rows, sizes, results))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
