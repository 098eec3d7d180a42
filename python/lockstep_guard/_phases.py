"""What the main thread does besides calling others: data, the forward and backward passes, the optimizer, evaluations, files."""
import functools

from ._places import when_imported

_told = False


def tell(native):
    global _told
    if _told:
        return
    _told = True

    def during(phase, function):
        @functools.wraps(function)
        def told(*args, **kwargs):
            if is_compiling():  # what torch.compile reads it takes for a part of the model
                return function(*args, **kwargs)
            before = native.enter_phase(phase)
            if before == "evaluate" and phase == "forward":  # a part of it, as no other phase of a step is
                native.enter_phase(before)
            try:
                return function(*args, **kwargs)
            finally:
                native.enter_phase(before)
        return told

    def method(kind, name, phase):
        setattr(kind, name, during(phase, getattr(kind, name)))

    import torch
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils.data.dataloader import _BaseDataLoaderIter
    torch.autograd.backward = during("backward", torch.autograd.backward)
    method(_BaseDataLoaderIter, "__next__", "data")
    torch.save = torch.serialization.save = during("save", torch.save)
    register_optimizer_step_pre_hook(lambda *_: native.enter_phase("step") and None)
    register_optimizer_step_post_hook(lambda *_: native.enter_phase("run") and None)

    def trainer(module):
        method(module.Trainer, "evaluation_loop", "evaluate")
        method(module.Trainer, "_save_checkpoint", "save")
        method(module.Trainer, "compute_loss", "forward")

    when_imported("transformers.trainer", trainer)
    when_imported("torch.nn.parallel.distributed", lambda module: method(module.DistributedDataParallel, "forward", "forward"))
