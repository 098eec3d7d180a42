"""A loop with Accelerate. A function is a step of all ranks; lines marked "# here" are places that a diagnosis may name."""
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast

from fault import Fault
from models import Rows, Tower

fault = Fault()
accelerator = Accelerator(cpu=True)
world = accelerator.num_processes
torch.manual_seed(0)
model = Tower()
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))


def trained(rows, with_image=True):
    loss = model(rows, with_image).pow(2).mean()  # here: tower_unused
    accelerator.backward(loss)  # here: tower_unused, exit_early, stalled_data
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def none(wrong):
    losses = accelerator.gather_for_metrics(trained(torch.randn(4, 8)))
    accelerator.gather({"losses": losses, "image_sizes": (torch.ones(2), torch.ones(2))})


def exit_early(wrong):
    if wrong:
        sys.exit(0)  # here
    trained(torch.randn(4, 8))


def stalled_data(wrong):
    rows, = torch.utils.data.DataLoader(Rows(stalled=wrong), batch_size=4)  # here
    trained(rows)


def tower_unused(wrong):
    """A batch of text alone."""
    trained(torch.randn(4, 8), with_image=not wrong)


# ---- Its own calls, another one on a rank.

def reduce_shape(wrong):
    accelerator.reduce(torch.ones(6 if wrong else 4))  # here


def gather_dtype(wrong):
    got = accelerator.gather(torch.ones(4, dtype=torch.int32 if wrong else torch.float32))  # here
    fault.expect(got, 1)


def uneven_first_dim(wrong):
    accelerator.gather(torch.ones(5 if wrong else 3, 2))  # here


def broadcast_source(wrong):
    broadcast(torch.ones(4), from_process=1 if wrong else 0)  # here


# ---- Structures: a call a leaf.

def tuple_2_1(wrong):
    width, height = torch.full((2,), 3.0), torch.full((2,), 4.0)
    accelerator.gather({"image_sizes": (width,) if wrong else (width, height), "loss": torch.ones(1)})  # here


def none_tensor(wrong):
    accelerator.gather({"image_sizes": None if wrong else torch.ones(2), "loss": torch.ones(1)})  # here


def word_for_tensor(wrong):
    accelerator.gather({"image_sizes": "336x336" if wrong else torch.ones(2), "loss": torch.ones(1)})  # here


# ---- Calls in another order, or none.

def equal_calls_swapped(wrong):
    loss, tokens = torch.ones(1), torch.full((1,), 100.0)

    def gather_losses():
        fault.expect(accelerator.gather(loss), 1)  # here

    def gather_tokens():
        fault.expect(accelerator.gather(tokens), 100)  # here

    for gather in (gather_tokens, gather_losses) if wrong else (gather_losses, gather_tokens):
        gather()


def gather_skipped(wrong):
    fault.expect(accelerator.gather(torch.ones(1)), 1)
    if not wrong:
        fault.expect(accelerator.gather(torch.full((1,), 100.0)), 100)  # here


for step in fault.steps(globals()):
    step()
accelerator.wait_for_everyone()
accelerator.end_training()
