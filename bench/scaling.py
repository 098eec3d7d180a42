#!/usr/bin/env python3
"""CPU seconds of a step and rank as ranks become more, each with its own rows: 1, 2, 4, 8 on the cores that there are.

  bench/scaling.py [--reps 2] [--steps 8] [--only zero3] [--out bench/results/scaling.json] [--replace]

What more ranks cost beside the work: calls between them, and turns on cores that they share. Each repetition runs all numbers
of ranks, one after the other; the ratio is to one rank of the same repetition.
"""
import argparse
import pathlib
import statistics

import provenance
from run import HERE, Case, check_installed, prepare, run_lockstep, summary

WORLDS = (1, 2, 4, 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", default="", help="stages whose name contains this")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    provenance.add_flags(parser, "scaling.json")
    args = parser.parse_args()
    provenance.check_place(args)
    check_installed()
    model, dataset = prepare(args.data), args.data / "tokens.jsonl"
    rows = []
    for stage in ("zero3", "zero0"):
        if args.only not in stage:
            continue
        results = {world: [] for world in WORLDS}
        for rep in range(args.reps):
            for world in WORLDS:
                case = Case(stage, stage, True, args.dtype, "fp32", [], world=world)
                results[world].append(run_lockstep(args.data, model, dataset, case, args.steps))
            print(f"  {stage}: repetition {rep + 1} of {args.reps} done", flush=True)
        for world, found in results.items():
            cpu = [one["cpu"] for one in found]
            ratios = [ours / alone["cpu"] for ours, alone in zip(cpu, results[1])]
            rows.append({"name": f"{stage} {args.dtype}, {world} ranks", "cpu_s_a_step_and_rank": statistics.median(cpu),
                         "of_one_rank": statistics.median(ratios), "spread": [min(ratios), max(ratios)],
                         "rss_mib": statistics.median(one["rss"] for one in found)})
            print(f"{stage} {args.dtype} {world} ranks: CPU seconds of a step and rank {summary(cpu)}, of one rank's {statistics.median(ratios):.2f} "
                  f"[{min(ratios):.2f} {max(ratios):.2f}]", flush=True)
    provenance.write(args, rows, steps=args.steps, repetitions=args.reps)


if __name__ == "__main__":
    main()
