"""Training with `fully_shard`. A function is a step of all ranks; lines marked "# here" are places that a diagnosis may name."""
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fault import Fault
from models import Tower

fault = Fault()
dist.init_process_group("gloo")
torch.manual_seed(0)
model, mesh = Tower(), init_device_mesh("cpu", (fault.world,))
for part in (model.body, model.vision_tower, model.connector, model.head, model):
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def trained(rows, with_image=True, stalled=False):
    scores = model(rows, with_image)  # here: tower_unused
    if stalled:
        scores.register_hook(lambda gradient: time.sleep(600))  # here: stalled_backward
    scores.pow(2).mean().backward()  # here: stalled_backward
    optimizer.step()
    optimizer.zero_grad()


def none(wrong):
    trained(torch.randn(4, 8))


def tower_unused(wrong):
    """A batch of text alone."""
    trained(torch.randn(4, 8), with_image=not wrong)


def stalled_backward(wrong):
    """The others wait in a reduce_scatter."""
    trained(torch.randn(4, 8), stalled=wrong)


for step in fault.steps(globals()):
    step()
dist.barrier()
dist.destroy_process_group()
