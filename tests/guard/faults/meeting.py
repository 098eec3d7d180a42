"""Ranks that part before they have met. Lines marked "# here" are places that a diagnosis may name."""
import os
import sys
import time

import torch
import torch.distributed as dist

from fault import Fault

fault = Fault()


def absent_rank():
    if fault.mine:
        fault.strike()
        time.sleep(600)  # here


def ends_before():
    """Its data have no rows for this rank, say."""
    if fault.mine:
        fault.strike()
        sys.exit()


def absent_node():
    """The other node's launcher is never started."""


def other_world_size():
    if fault.mine:
        fault.strike()
        os.environ["WORLD_SIZE"] = str(fault.world + 1)  # here


globals()[fault.name]()
dist.init_process_group("gloo")  # here: absent_rank, other_world_size
for _ in range(20):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
