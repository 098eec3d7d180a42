"""Calls that modules make by themselves: DDP's, whose parameters all ranks have in common, and FSDP2's, module by module."""
import functools
import weakref

from ._places import when_imported
from ._structures import show

_models = weakref.WeakSet()  # of DistributedDataParallel


def tell(native):
    when_imported("torch.nn.parallel.distributed", lambda module: _label_ddp(native, module.DistributedDataParallel))
    when_imported("torch.distributed.fsdp._fully_shard._fsdp_param_group", lambda module: _label_fsdp(native, module.FSDPParamGroup))


def names_of_parameters():
    """Of the parameters that DDP counts, in its order; of the last model."""
    names = []
    for model in _models:
        names = [name for name, value in model.module.named_parameters() if value.requires_grad]
    return names


def _label_ddp(native, kind):
    made = kind.__init__

    @functools.wraps(made)
    def told(self, module, *args, **kwargs):
        left_out = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        nodes = [(f".{name}", f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
                 for name, value in module.named_parameters() if value.requires_grad and name not in left_out]
        before = native.label(show(native, "parameters", f"parameters of {type(module).__name__}", nodes))
        try:
            made(self, module, *args, **kwargs)
        finally:
            native.label(before)
        _models.add(self)

    kind.__init__ = told


def _label_fsdp(native, kind):
    def labelled(function, what):
        @functools.wraps(function)
        def told(self, *args, **kwargs):
            before = native.label(f"{self._module_fqn or 'root module'} {what}"[-79:])
            try:
                return function(self, *args, **kwargs)
            finally:
                native.label(before)
        return told

    kind.unshard = labelled(kind.unshard, "gather")
    kind.post_backward = labelled(kind.post_backward, "gradient")
