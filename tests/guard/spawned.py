"""Ranks that no launcher has started: spawned.py env|tcp|file|store none|shape|raises|"raises, and aborts"|killed FOLDER [fork] meets in one of the ways that torch has.

Each is a new Python, or with `fork` a copy of this one, as those of Accelerate's notebook_launcher are. With REPORT_FIRST in the environment this
one has asked for a report before, when there was nothing to tell.
"""
import atexit
import os
import signal
import sys
from pathlib import Path

aborting = []
if __name__ == "__mp_main__":  # before torch, so that it comes behind what the guard does at the end
    atexit.register(lambda: os.abort() if aborting else None)

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from story import free_port

WORLD = 3


def meet(rank, how, where, port):
    if how == "env":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    elif how == "store":
        dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, WORLD, rank == 0), rank=rank, world_size=WORLD)
    else:
        method = f"tcp://127.0.0.1:{port}" if how == "tcp" else f"file://{where}/meeting"
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=WORLD)


def work(rank, how, kind, where, port):
    meet(rank, how, where, port)
    for i in range(10):
        if kind.startswith("raises") and rank == 1 and i == 5:
            aborting.extend([rank] if kind == "raises, and aborts" else [])
            raise ValueError("bad row 12")
        if kind == "killed" and rank == 1 and i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(5 if kind == "shape" and rank == 1 and i == 5 else 3))  # usual call
    dist.destroy_process_group()


if __name__ == "__main__":
    if "REPORT_FIRST" in os.environ:
        import lockstep_guard
        assert lockstep_guard.report()["calls"] == 0
    multiprocessing.start_processes(work, args=(*sys.argv[1:4], free_port()), nprocs=WORLD,
                                    start_method=sys.argv[4] if len(sys.argv) > 4 else "spawn")
