"""A rank of plain calls that ends, raises, stops or stays away. A function is a step of all ranks; lines marked "# here" may be named."""
import os
import signal
import sys

import torch
import torch.distributed as dist

from fault import Fault
from models import Rows

fault = Fault()
dist.init_process_group("gloo")
world = dist.get_world_size()


def none(wrong):
    dist.all_reduce(torch.ones(4))


def exit_early(wrong):
    if wrong:
        sys.exit(0)  # here
    dist.all_reduce(torch.ones(4))  # here


def raises(wrong):
    if wrong:
        raise ValueError("row 17 has no caption")  # here
    dist.all_reduce(torch.ones(4))


def raises_then_barrier(wrong):
    try:
        if wrong:
            raise ValueError("row 17 has no caption")  # here
        dist.all_reduce(torch.ones(4))
    finally:
        dist.barrier()  # here


def sigkill(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGKILL)  # here
    dist.all_reduce(torch.ones(4))  # here


def sigterm(wrong):
    """Somebody ends one of the ranks."""
    if wrong:
        os.kill(os.getpid(), signal.SIGTERM)  # here
    dist.all_reduce(torch.ones(4))  # here


def sigabrt(wrong):
    if wrong:
        os.abort()  # here
    dist.all_reduce(torch.ones(4))  # here


def sigstop(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGSTOP)  # here
    dist.all_reduce(torch.ones(4))  # here


def stalled_data(wrong):
    rows, = torch.utils.data.DataLoader(Rows(stalled=wrong), batch_size=4)  # here
    dist.all_reduce(rows)  # here


def out_of_memory(wrong):
    torch.empty(1 << 50 if wrong else 1)  # here
    dist.all_reduce(torch.ones(4))


def out_of_memory_caught(wrong):
    """The batch is left out, and with it the calls of its step."""
    try:
        torch.empty(1 << 50 if wrong else 1)  # here
    except RuntimeError:
        return
    dist.all_reduce(torch.ones(4))  # here


def unpicklable(wrong):
    objects = [None] * world
    dist.all_gather_object(objects, (lambda: 0) if wrong else 0)  # here


def unsaved(wrong):
    """One rank cannot write its part of a checkpoint: all of them raise."""
    if fault.now == fault.step:
        import torch.distributed.checkpoint as checkpoint
        part = {"rows": torch.ones(4), f"of rank {fault.rank}": (lambda: 0) if wrong else 0}
        checkpoint.save(part, checkpoint_id=fault.folder / "checkpoint")  # here
    dist.all_reduce(torch.ones(4))


def stale_lock(wrong):
    """A build that was killed has left its lock: all ranks wait for somebody who is long gone."""
    if fault.now == fault.step:
        from torch.utils.cpp_extension import load_inline
        folder = fault.folder / "kernel"
        folder.mkdir(exist_ok=True)
        (folder / "lock").touch()
        fault.strike()
        load_inline("kernel", "int one() { return 1; }", functions=["one"], build_directory=folder)  # here
    dist.all_reduce(torch.ones(4))


for step in fault.steps(globals()):
    step()
dist.barrier()  # here: out_of_memory_caught
dist.destroy_process_group()
