"""Calls that modules make by themselves: DDP's, whose parameters all ranks have in common, FSDP2's, module by module, and DeepSpeed's, module by
module and bucket by bucket."""
import functools
import json
import weakref

from ._places import put_in_place, when_imported
from ._structures import show

_models = weakref.WeakSet()  # of DistributedDataParallel


def tell(native):
    when_imported("torch.nn.parallel.distributed", lambda module: _label_ddp(native, module.DistributedDataParallel))
    when_imported("torch.distributed.fsdp._fully_shard._fsdp_param_group", lambda module: _label_fsdp(native, module.FSDPParamGroup))
    zero = "deepspeed.runtime.zero"
    when_imported("deepspeed.runtime.comm.coalesced_collectives", lambda module: _look_before_padding(native, module.reduce_scatter_coalesced))
    when_imported("deepspeed.runtime.engine", lambda module: _label_engine(native, module.DeepSpeedEngine))
    when_imported(f"{zero}.partitioned_param_coordinator", lambda module: _label_fetches(native, module.PartitionedParameterCoordinator))
    when_imported(f"{zero}.partitioned_param_coordinator", lambda module: _look_at_order(native, module.PartitionedParameterCoordinator))
    when_imported(f"{zero}.stage_1_and_2", lambda module: _label_buckets(native, module.DeepSpeedZeroOptimizer, "reduce_ipg_grads", _of_ids))
    when_imported(f"{zero}.stage3", lambda module: _label_buckets(
        native, module.DeepSpeedZeroOptimizer_Stage3, "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads", _of_tensors))


def names_of_parameters():
    """Of the parameters that DDP counts, in its order; of the last model."""
    names = []
    for model in _models:
        inner = getattr(model, "module", None)  # none yet: it is being made
        names = [name for name, value in inner.named_parameters() if value.requires_grad] if inner is not None else names
    return names


def _nodes(named, remark=lambda value: ""):
    return [(f".{name}", f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{remark(value)}") for name, value in named]


def _labelled(native, kind, method, label_of_call):
    """The class's method, whose calls carry what label_of_call(self, …) says; where it says nothing or fails, they are as they were."""
    function = getattr(kind, method)

    @functools.wraps(function)
    def told(self, *args, **kwargs):
        try:
            label = label_of_call(self, *args, **kwargs)
        except Exception:  # another version of the package: a job is never worse off
            label = ""
        if not label:
            return function(self, *args, **kwargs)
        before = native.label(label)
        try:
            return function(self, *args, **kwargs)
        finally:
            native.label(before)

    setattr(kind, method, told)


def _label_ddp(native, kind):
    def label(self, module, *args, **kwargs):
        left_out = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        parameters = [(name, value) for name, value in module.named_parameters() if name not in left_out]
        buffers = [(name, value) for name, value in module.named_buffers() if name not in left_out]
        if kwargs.get("init_sync", True):  # those that are frozen, and buffers, come from the first rank as well
            nodes = _nodes(parameters, lambda value: "" if value.requires_grad else ", frozen") + _nodes(buffers, lambda value: ", a buffer")
        else:
            nodes = _nodes((name, value) for name, value in parameters if value.requires_grad)
        nodes.append(("find_unused_parameters", str(bool(kwargs.get("find_unused_parameters")))))
        _models.add(self)
        return show(native, "parameters", f"parameters of {type(module).__name__}", nodes)

    _labelled(native, kind, "__init__", label)


def _label_fsdp(native, kind):
    def labelled(what):
        return lambda self, *args, **kwargs: f"{self._module_fqn or 'root module'} {what}"[-79:]

    _labelled(native, kind, "unshard", labelled("gather"))
    _labelled(native, kind, "post_backward", labelled("gradient"))


def _label_engine(native, kind):
    """Which sends the first rank's parameters to the others, one by one, when it is made."""
    _labelled(native, kind, "_broadcast_model", lambda self, *args, **kwargs: show(
        native, "parameters", f"parameters of {type(self.module).__name__}", _nodes(self.module.named_parameters())))


def _label_fetches(native, kind):
    """ZeRO-3 gathers what a module needs when it comes to it."""
    def label(self, current_submodule, *args, **kwargs):
        from deepspeed.utils.debug import module_names
        return f"{module_names[current_submodule] or 'root module'} gather"[-79:] if current_submodule in module_names else ""

    _labelled(native, kind, "fetch_sub_module", label)


def _look_at_order(native, kind):
    """ZeRO-3 gathers ahead, by the order of the pass before: which module a rank has left out stands in none of its calls."""
    prologue, reset = kind.trace_prologue, kind.reset_step

    def show_note(self, note):
        native.show_structure("modules", json.dumps({"label": "modules", "nodes": [], "note": note}))
        self._lockstep_strayed = bool(note)

    @functools.wraps(prologue)
    def told(self, sub_module, *args, **kwargs):
        try:
            if note := _strayed(self, sub_module):  # before it is forgotten what was expected
                show_note(self, note)
        except Exception:  # another version of the package: a job is never worse off
            pass
        return prologue(self, sub_module, *args, **kwargs)

    @functools.wraps(reset)
    def begun(self, *args, **kwargs):
        try:
            if getattr(self, "_lockstep_strayed", False) and self.is_complete_trace():  # a pass was as the one before
                show_note(self, "")
        except Exception:
            pass
        return reset(self, *args, **kwargs)

    kind.trace_prologue, kind.reset_step = told, begun


def _strayed(coordinator, module):
    """What is told of the rank; nothing: it runs what it ran in the pass before."""
    if not coordinator.is_complete_trace():
        return ""
    order, at = (getattr(coordinator, f"_PartitionedParameterCoordinator__{name}") for name in ("submodule_order", "step_id"))
    if at < len(order) and order[at] is module:
        return ""
    from deepspeed.utils.debug import module_names

    def name_of(one):
        return (module_names[one] if one in module_names else "") or "the whole model"

    later = next((number for number in range(at, len(order)) if order[number] is module), None)
    if later is None:
        return f"ran {name_of(module)} where it did not run in the pass before"
    skipped = list(dict.fromkeys(name_of(one) for one in order[at:later]))
    return f"skipped {', '.join(skipped[:6])}{' and others' if len(skipped) > 6 else ''}, which came before {name_of(module)} in the pass before"


def _label_buckets(native, kind, method, parameters_of):
    """Gradients are reduced when a bucket of them is full: which are in it."""
    def label(self, comm_dtype=None, *args, **kwargs):
        from deepspeed.utils.debug import param_names
        buckets = self.ipg_buckets.values() if comm_dtype is None else [self.ipg_buckets[comm_dtype]]
        named = [(param_names[one], one) for bucket in buckets for one in parameters_of(self, bucket) if one in param_names]
        return show(native, "gradients", "gradients of a bucket", [(f".{name}", f"{list(getattr(one, 'ds_shape', one.shape))}") for name, one in named]) if named else ""

    _labelled(native, kind, method, label)


def _look_before_padding(native, function):
    """ZeRO-3 fills gradients that ranks cannot share evenly up with memory as it comes, where NaN may stand: they themselves are looked at."""
    @functools.wraps(function)
    def told(tensors, *args, **kwargs):
        try:
            holds = any(native.holds_nan(one.data_ptr(), one.numel(), str(one.dtype).removeprefix("torch.")) for one in tensors if one.device.type == "cpu" and one.is_contiguous())
        except Exception:  # none of them says so then
            holds = False
        before = native.tell_nan(holds)
        try:
            return function(tensors, *args, **kwargs)
        finally:
            native.tell_nan(before)

    put_in_place({function: told}, ("deepspeed",))


def _of_tensors(_, bucket):
    return bucket.params


def _of_ids(self, bucket):
    return [self.bit16_groups[group][index] for group, index, _ in bucket.params]
