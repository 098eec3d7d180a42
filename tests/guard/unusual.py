"""Jobs without a fault that are not the usual ones: torchrun … unusual.py KIND FOLDER. KIND: "at exit", its last calls are made when Python
leaves; "parted", a rank becomes another program when the group is destroyed; "other ranks", they meet again as others, two and one;
"two swapped", as others but for one; "patient", a group of its own waits longer than the default one would; "patient later", all of
them do from then on; "locals", what a frame is asked for is not kept; "hooks", what stands in the place of others' functions takes what those take."""
import atexit
import datetime
import importlib.util
import os
import sys
import time
import weakref
from types import SimpleNamespace

import torch
import torch.distributed as dist

kind, folder = sys.argv[1:]


def leave():
    if dist.get_rank() == 1:
        time.sleep(2)
    dist.barrier()
    dist.destroy_process_group()


def look_at_locals(held):
    from lockstep_guard._places import locals_of
    one = torch.zeros(3)
    kept, mine = weakref.ref(one), locals() if held else None
    assert locals_of(sys._getframe())["one"] is one
    assert not held or mine["one"] is one, "what locals() gave was emptied"
    del one, mine
    assert held or kept() is None, "a frame keeps what it was asked for"


class Finder:
    """Of a package that is installed to be edited."""
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, f"{folder}/edited.{os.getpid()}.py") if name == "edited_package" else None


class Trainer:
    label_names = ["labels"]

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, more=0):
        return model(inputs[0]), more

    evaluation_loop = None


def look_at_hooks():
    from lockstep_guard import _places, _trainer
    seen = []
    with open(f"{folder}/edited.{os.getpid()}.py", "w") as file:
        file.write("VALUE = 3\n")
    sys.meta_path.append(Finder())
    _places.when_imported("edited_package", lambda module: seen.append(module.VALUE))
    importlib.import_module("edited_package")
    assert seen == [3], "a package that another finder finds is not seen"
    Trainer.evaluation_loop = lambda self: None
    _trainer._watch_predictions(SimpleNamespace(Trainer=Trainer))
    out, more = Trainer().prediction_step(torch.nn.Linear(2, 1), (torch.ones(1, 2),), False, more=7)  # no mapping, and one argument more
    assert (out.shape, more) == ((1, 1), 7)


if kind == "hooks":
    look_at_hooks()
    sys.exit()
if kind == "locals":
    look_at_locals(False)
    look_at_locals(True)
    sys.exit()
if kind == "at exit":
    atexit.register(leave)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3 if kind.startswith("patient") else 60))
rank = dist.get_rank()
dist.all_reduce(torch.zeros(3))
if kind == "parted":
    dist.destroy_process_group()
    if rank == 1:
        os.execv("/bin/sleep", ["sleep", "2"])
    time.sleep(4)
if kind == "other ranks":
    dist.destroy_process_group()
    if rank < 2:
        dist.init_process_group("gloo", init_method=f"file://{folder}/two", rank=1 - rank, world_size=2)
        dist.all_reduce(torch.zeros(4))
        dist.broadcast(torch.zeros(2), src=0)
        time.sleep(1)
        dist.destroy_process_group()
if kind == "two swapped":
    dist.destroy_process_group()
    rank = (0, 2, 1)[rank]
    dist.init_process_group("gloo", init_method=f"file://{folder}/swapped", rank=rank, world_size=3)
    time.sleep(2 if rank == 1 else 0)
    dist.all_reduce(torch.zeros(4))
if kind == "patient later":
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(hours=1))
    if rank == 0:
        time.sleep(8)
    dist.all_reduce(torch.zeros(3))
if kind == "patient":
    group = dist.new_group(timeout=datetime.timedelta(hours=1))
    if rank == 0:
        time.sleep(8)
    dist.barrier(group=group)
