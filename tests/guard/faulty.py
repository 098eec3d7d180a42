"""A job of plain collective calls in which rank 1 does something else at step 8: torchrun … faulty.py KIND."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.zeros(3, 4)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        time.sleep(600)


class Holds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(600)


def step():
    dist.all_reduce(x)  # usual call
    dist.broadcast(torch.zeros(7), src=0)


def other_step():
    if kind == "shape":
        dist.all_reduce(torch.zeros(5))
    elif kind == "dtype":
        dist.all_reduce(torch.zeros(3, 4, dtype=torch.int32))
    elif kind == "reduction":
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    elif kind == "barrier":
        dist.barrier()
    elif kind == "skipped call":
        dist.broadcast(torch.zeros(7), src=0)
    elif kind == "skipped step":
        pass
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exception":
        raise KeyError("no such column")
    elif kind == "early exit":
        sys.exit(3)
    elif kind == "loader":
        next(iter(torch.utils.data.DataLoader(Slow())))
    elif kind == "backward":
        Holds.apply(x.requires_grad_()).sum().backward()
    elif kind == "stall":
        time.sleep(600)
    elif kind == "slow":
        time.sleep(5)
        step()
    if kind in ("shape", "dtype", "reduction", "barrier"):  # in place of a call, and goes on as ever
        dist.broadcast(torch.zeros(7), src=0)


for i in range(20):
    if kind == "root" and i == 8:
        dist.broadcast(torch.zeros(2), src=1 if rank == 1 else 0)
    elif rank == 1 and i == 8 and kind not in ("none", "os._exit"):
        other_step()
    else:
        step()
    time.sleep(0.02)
if kind == "os._exit":
    os._exit(0)
dist.destroy_process_group()
