"""Training with DistributedDataParallel. A function is a step of all ranks; lines marked "# here" are places that a diagnosis may name."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from fault import Fault
from models import Rows, Tower

fault = Fault()
dist.init_process_group("gloo")
deeper = fault.name == "deeper_model" and fault.mine
if deeper:
    fault.strike()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Tower(deep=2 if deeper else 0))  # here: deeper_model
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def trained(rows, with_image=True):
    loss = model(rows, with_image).pow(2).mean()  # here: tower_unused, tower_unused_in_turn
    loss.backward()  # here: tower_unused, tower_unused_in_turn, nan_gradient, out_of_memory_caught, exit_early, sigkill, sigstop, stalled_data
    optimizer.step()
    optimizer.zero_grad()
    fault.expect(torch.isfinite(next(model.parameters())), True)


def none(wrong):
    trained(torch.randn(4, 8))


def exit_early(wrong):
    if wrong:
        sys.exit(0)  # here
    trained(torch.randn(4, 8))


def raises(wrong):
    if wrong:
        raise ValueError("row 17 has no caption")  # here
    trained(torch.randn(4, 8))


def sigkill(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGKILL)  # here
    trained(torch.randn(4, 8))


def sigstop(wrong):
    if wrong:
        os.kill(os.getpid(), signal.SIGSTOP)  # here
    trained(torch.randn(4, 8))


def stalled_data(wrong):
    rows, = torch.utils.data.DataLoader(Rows(stalled=wrong), batch_size=4)  # here
    trained(rows)


def tower_unused(wrong):
    """A batch of text alone."""
    trained(torch.randn(4, 8), with_image=not wrong)


def tower_unused_in_turn(wrong):
    on = (fault.culprit + fault.now - fault.step) % fault.world
    trained(torch.randn(4, 8), with_image=fault.now < fault.step or fault.rank != on)


def nan_gradient(wrong):
    rows = torch.randn(4, 8)
    trained(rows * float("nan") if wrong else rows)


def deeper_model(wrong):
    trained(torch.randn(4, 8))


def out_of_memory(wrong):
    trained(torch.randn(1 << 47 if wrong else 4, 8))  # here


def out_of_memory_caught(wrong):
    """The batch is left out, and with it the calls of its step."""
    try:
        rows = torch.empty(1 << 47 if wrong else 4, 8)  # here
    except RuntimeError:
        return
    trained(rows.normal_())


def slow_rank(wrong):
    if fault.mine:
        fault.strike()
    time.sleep(0.5 if fault.mine else 0.05)
    trained(torch.randn(4, 8))


for step in fault.steps(globals()):
    step()
dist.barrier()  # here: out_of_memory_caught
dist.destroy_process_group()
