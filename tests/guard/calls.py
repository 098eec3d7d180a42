"""A job of plain collective calls: torchrun … calls.py none|slow|asleep|os._exit|shape|"for ever". What rank 1 does on the way is right but for "shape"."""
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


print("up", flush=True)
for i in range(1 << 30 if kind == "for ever" else 60):
    if rank == 1 and i == 8 and kind == "slow":
        time.sleep(10)
    if rank == 1 and i == 8 and kind == "asleep":
        print("asleep", flush=True)
        time.sleep(600)
    if rank == 1 and i == 40 and kind == "shape":  # by then nodes have met
        dist.all_reduce(torch.zeros(5))  # another call
    step()
    time.sleep(0.02)
if kind == "slow":
    import lockstep_guard
    until = time.monotonic() + 30
    while lockstep_guard.report()["slowest"] != 1 and time.monotonic() < until:  # it is told once a second
        time.sleep(0.1)
    print(lockstep_guard.report() if rank == 0 else "", flush=True)
if kind == "os._exit":
    os._exit(0)
dist.destroy_process_group()
