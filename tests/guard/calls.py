"""A job of plain collective calls: torchrun … calls.py none|slow|os._exit|shape. What rank 1 does at step 8 is right but for "shape"."""
import os
import sys
import time

import torch
import torch.distributed as dist

kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.zeros(3, 4)


def step():
    dist.all_reduce(x)  # usual call
    dist.broadcast(torch.zeros(7), src=0)


for i in range(20):
    if rank == 1 and i == 8 and kind == "slow":
        time.sleep(5)
    if rank == 1 and i == 8 and kind == "shape":
        dist.all_reduce(torch.zeros(5))  # another call
    step()
    time.sleep(0.02)
if kind == "os._exit":
    os._exit(0)
dist.destroy_process_group()
