"""Training with DeepSpeed on CPU, ZeRO-3 or ZeRO-2. A function is a step of all ranks; "# here" marks what a diagnosis may name."""
import os
import sys
from datetime import timedelta

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch

from fault import Fault
from models import Rows, Tower

fault = Fault()
if fault.name == "stale_lock":  # before the first kernel is looked for
    folder = fault.folder / "kernels" / "deepspeed_shm_comm"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock").touch()
    os.environ["TORCH_EXTENSIONS_DIR"] = str(fault.folder / "kernels")
    fault.strike()
deepspeed.init_distributed("gloo", **({"timeout": timedelta(seconds=fault.timeout)} if fault.timeout else {}))  # here: stale_lock
torch.manual_seed(0)
deeper = fault.name == "deeper_model" and fault.mine
if deeper:
    fault.strike()
model, *_ = deepspeed.initialize(model=Tower(deep=2 if deeper else 0), config={  # here: deeper_model
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2 if fault.name.endswith("zero2") else 3,
                          "stage3_param_persistence_threshold": 100_000 if fault.name.endswith("kept") else 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
})


def trained(rows, with_image=True):
    loss = model(rows, with_image).pow(2).mean()  # here: tower_unused, exit_early, exit_early_kept, stalled_data, stalled_data_kept
    model.backward(loss)  # here: tower_unused, tower_unused_zero2, exit_early, exit_early_kept, stalled_data, stalled_data_kept, nan_gradient
    model.step()  # here: tower_unused, tower_unused_zero2, nan_gradient


def none(wrong):
    trained(torch.randn(4, 8))


def none_zero2(wrong):
    trained(torch.randn(4, 8))


def exit_early(wrong):
    if wrong:
        sys.exit(0)  # here
    trained(torch.randn(4, 8))


def exit_early_kept(wrong):
    """Every rank keeps parameters so small: the others wait in a reduce_scatter."""
    if wrong:
        sys.exit(0)  # here
    trained(torch.randn(4, 8))


def stalled_data(wrong):
    rows, = torch.utils.data.DataLoader(Rows(stalled=wrong), batch_size=4)  # here
    trained(rows)


def stalled_data_kept(wrong):
    rows, = torch.utils.data.DataLoader(Rows(stalled=wrong), batch_size=4)  # here
    trained(rows)


def tower_unused(wrong):
    """A batch of text alone."""
    trained(torch.randn(4, 8), with_image=not wrong)


def tower_unused_zero2(wrong):
    trained(torch.randn(4, 8), with_image=not wrong)


def nan_gradient(wrong):
    rows = torch.randn(4, 8)
    trained(rows * float("nan") if wrong else rows)


def deeper_model(wrong):
    trained(torch.randn(4, 8))


def stale_lock(wrong):
    trained(torch.randn(4, 8))


for step in fault.steps(globals()):
    step()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
