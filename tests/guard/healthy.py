"""Jobs of several kinds in which nothing is wrong: torchrun … healthy.py FOLDER [--kinds NAME …] [--seed N] writes what each rank got.

One after another in one job; with --seed, ranks are late at random. Without --kinds: those that CI has packages and time for; with
LOCKSTEP_TORCH_ALONE=1 fewer.
"""
import argparse
import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

import lockstep_guard

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kinds import calls, common, libraries, modules

KINDS = {name: function for room in (calls, modules, libraries) for name, function in vars(room).items()
         if callable(function) and getattr(function, "__module__", "") == room.__name__ and not name.startswith("_")}
QUICK = ("ddp", "fsdp2", "groups", "collectives", "objects", "functional", "pairs", "all_to_all", "coalesced", "barriers", "padding", "hsdp", "tensor_parallel",
         "pipeline", "compiled", "join", "branches", "overlaps", "checkpoints", "children", "accelerate", "trainer", "peft")
TORCH_ALONE = tuple(kind for kind in QUICK if kind not in ("accelerate", "trainer", "peft"))
MEETS_BY_ITSELF = ("accelerate", "trainer", "peft", "zero1", "zero2", "zero3", "trainer_zero3", "trl")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=TORCH_ALONE if os.environ.get("LOCKSTEP_TORCH_ALONE") == "1" else QUICK)
    parser.add_argument("--seed", type=int, help="ranks are late at random; default: none is")
    args = parser.parse_args()
    if args.kinds[0] not in MEETS_BY_ITSELF:
        dist.init_process_group("gloo")
    found = {}
    for kind in args.kinds:
        if args.seed is not None:
            common.draw_lateness(args.seed, kind)
        common.folder_of_job = args.folder / kind
        found[kind] = KINDS[kind]()
    (args.folder / f"{common.rank}.json").write_text(json.dumps(found))
    (args.folder / f"{common.rank}.calls").write_text(json.dumps(lockstep_guard.report()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
