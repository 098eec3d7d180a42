"""What calls are for: nested values that are gathered one by one, parameters that ranks are to have in common, sharded modules.

A call carries a label, which is compared with those of the other ranks before anything moves. Of a nest of values it changes with every
node of the nest, and the nest is shown beside it, so that the first difference can be told.
"""
import ast
import collections.abc
import functools
import hashlib
import json
import linecache
import sys
import threading
import weakref
from pathlib import Path

from ._places import put_in_place, when_imported

MOST_BYTES = 7600
PASSED_OVER = ("/torch/", "/accelerate/", "/lockstep_guard/", "/contextlib.py", "/functools.py", "/transformers/trainer_pt_utils.py")

_told = False
_models = weakref.WeakSet()  # of DistributedDataParallel
_output_names, _left_out = [], []  # of the last prediction of a Trainer: what it keeps, and what it does not
_batch = []                  # nodes of the batch that a Trainer evaluates
_shown = collections.deque(maxlen=12)  # labels that those who compare have, fewer than they keep
_inside = threading.local()
_collate = ""                # of the last DataLoader that was walked


def names_of_parameters():
    """Of the parameters that DDP counts, in its order; of the last model."""
    names = []
    for model in _models:
        names = [name for name, value in model.module.named_parameters() if value.requires_grad]
    return names


def nodes_of(value, path=""):
    """Every node of a nest as (path, what it is): of a tensor dtype and dimensions, whose sizes may differ."""
    import torch
    if isinstance(value, torch.Tensor):
        return [(path, f"{str(value.dtype).removeprefix('torch.')} tensor, {max(1, value.ndim)}-d")]
    if isinstance(value, collections.abc.Mapping):
        parts = [(f"{path}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
    else:
        return [(path, "None" if value is None else type(value).__name__)]
    return [(path, f"{len(parts)} value{'' if len(parts) == 1 else 's'}")] + [node for part in parts for node in nodes_of(part[1], part[0])]


def label_of(title, nodes):
    """The title must be that of all ranks: a line's own words are not, where ranks come to one call from several lines."""
    return f"{title} #{hashlib.blake2s(repr(nodes).encode(), digest_size=4).hexdigest()}"


def _show(native, kind, title, nodes, **more):
    """To those who compare, as guard/structure.h reads it, within its room. Returns the label."""
    label = label_of(kind, nodes)
    if label not in _shown:
        structure = {"label": label, "title": title, "nodes": nodes, **more}
        text = json.dumps(structure)
        while len(text) > MOST_BYTES and structure["nodes"]:
            structure["nodes"] = structure["nodes"][:len(structure["nodes"]) * 3 // 4]
            text = json.dumps(structure)
        native.show_structure(label, text)
        _shown.append(label)
    return label


def _note(error, title, nodes):
    """What was to be gathered and is no tensor: the words of whoever could not gather it do not say which."""
    for path, what in nodes:
        if not path[:1].isalpha() and " value" not in what and "tensor" not in what:
            error.lockstep_about = f"{title}{path} is {what}"
            return


def about(error):
    """What is known of an exception besides its words."""
    found = getattr(error, "lockstep_about", None)
    return f" ({found})" if found else ""


def tell(native):
    global _told
    if _told:
        return
    _told = True

    def while_gathering(function):
        @functools.wraps(function)
        def told(value, *args, **kwargs):
            if getattr(_inside, "gathers", False):
                return function(value, *args, **kwargs)
            try:
                about = _about(sys._getframe(1))
                nodes = nodes_of(value) + _batch
                label = _show(native, "values", about["title"], nodes, **{key: about[key] for key in ("names", "fixes", "note")})
            except Exception:
                return function(value, *args, **kwargs)
            before, _inside.gathers = native.label(label), True
            try:
                return function(value, *args, **kwargs)
            except Exception as error:
                _note(error, about["title"], nodes)
                raise
            finally:
                _inside.gathers = False
                native.label(before)
        return told

    def operations(module):
        for name in ("gather", "pad_across_processes", "broadcast", "reduce"):
            original = getattr(module, name, None)
            if original is not None:
                ours = while_gathering(original)
                setattr(module, name, ours)
                put_in_place(original, ours, ("accelerate", "transformers", "trl"))

    def trainer_tools(module):
        for name in ("nested_gather", "distributed_concat"):
            original = getattr(module, name, None)
            if original is not None:
                ours = while_gathering(original)
                setattr(module, name, ours)
                put_in_place(original, ours, ("transformers", "trl"))

    when_imported("accelerate.utils.operations", operations)
    when_imported("transformers.trainer_pt_utils", trainer_tools)
    when_imported("transformers.trainer", _watch_predictions)
    when_imported("torch.utils.data.dataloader", _watch_collation)
    when_imported("torch.nn.parallel.distributed", lambda module: _label_ddp(native, module.DistributedDataParallel))
    when_imported("torch.distributed.fsdp._fully_shard._fsdp_param_group", lambda module: _label_fsdp(native, module.FSDPParamGroup))


def _label_ddp(native, kind):
    made = kind.__init__

    @functools.wraps(made)
    def told(self, module, *args, **kwargs):
        left_out = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        nodes = [(f".{name}", f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
                 for name, value in module.named_parameters() if value.requires_grad and name not in left_out]
        before = native.label(_show(native, "parameters", f"parameters of {type(module).__name__}", nodes))
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


def _watch_collation(module):
    made = module._BaseDataLoaderIter.__init__

    @functools.wraps(made)
    def told(self, loader, *args, **kwargs):
        global _collate
        code = getattr(getattr(loader, "collate_fn", None), "__code__", None) or getattr(
            getattr(type(getattr(loader, "collate_fn", None)), "__call__", None), "__code__", None)
        if code is not None:
            _collate = f"rows are collated by {code.co_name} at {Path(code.co_filename).name}:{code.co_firstlineno}"
        return made(self, loader, *args, **kwargs)

    module._BaseDataLoaderIter.__init__ = told


def _watch_predictions(module):
    """What the Trainer evaluates and which outputs it keeps, in their order: it gathers them without their names."""
    step, loop = module.Trainer.prediction_step, module.Trainer.evaluation_loop

    @functools.wraps(step)
    def told(self, model, inputs, prediction_loss_only, ignore_keys=None):
        if prediction_loss_only:  # nothing of these is gathered
            return step(self, model, inputs, prediction_loss_only, ignore_keys=ignore_keys)
        _batch[:] = [node for name in self.label_names or [] for node in nodes_of(inputs.get(name), f"batch[{name!r}]")]

        def keep(_module, _inputs, outputs):
            left_out = ignore_keys
            if left_out is None:
                left_out = getattr(getattr(self.model, "config", None), "keys_to_ignore_at_inference", ["past_key_values"])
            _left_out[:] = left_out
            _output_names[:] = [name for name in outputs if name != "loss" and name not in left_out] if isinstance(outputs, dict) else []
            _batch.extend((f"outputs[{name!r}]", nodes_of(outputs[name])[0][1]) for name in _output_names)
        handle = model.register_forward_hook(keep)
        try:
            return step(self, model, inputs, prediction_loss_only, ignore_keys=ignore_keys)
        finally:
            handle.remove()

    @functools.wraps(loop)
    def evaluated(*args, **kwargs):
        try:
            return loop(*args, **kwargs)
        finally:
            _batch.clear()

    module.Trainer.prediction_step, module.Trainer.evaluation_loop = told, evaluated


def _about(frame):
    """Title of what is gathered, names and repairs of its parts: from the line that asks for it, and from a Trainer whose loop it is."""
    while frame is not None and any(part in frame.f_code.co_filename for part in PASSED_OVER):
        frame = frame.f_back  # to whoever asks: a person's loop, or a Trainer's
    out = {"title": "values", "names": {}, "fixes": {}, "note": _collate}
    if frame is None:
        return out
    out["title"], parts = _argument(frame.f_code, frame.f_lineno)
    out["names"] = {f"[{i}]": name for i, name in enumerate(parts)}
    fields = getattr(frame.f_locals.get("self"), "label_names", None) if _batch else None
    for i, name in enumerate(fields or []):
        rest = [other for other in fields if other != name]
        fix = f"leave {name} out of what is gathered: TrainingArguments(label_names={json.dumps(rest)})" if rest else ""
        _repair(out, "labels", i, len(fields), f"batch[{name!r}]", name, f"{fix}{', or ' if fix else ''}let collation give it one structure on all ranks")
    for i, name in enumerate(_output_names if _batch else []):
        keys = json.dumps([*_left_out, name])
        _repair(out, "logits", i, len(_output_names), f"outputs[{name!r}]", name,
                f"leave {name} out of what is gathered: trainer.evaluate(ignore_keys={keys}) and trainer.train(ignore_keys_for_eval={keys})")
    return out


def _repair(out, title, i, count, path, name, fix):
    """Of a field, where it is gathered by its number and where the batch is compared. One alone is gathered as itself."""
    out["fixes"][path] = fix
    if out["title"] == title:
        part = f"[{i}]" if count > 1 else ""
        out["names"][part], out["fixes"][part] = name, fix


@functools.lru_cache(maxsize=256)
def _argument(code, line):
    """("labels", []) of gather(labels), ("values", ["a", "b"]) of gather((a, b))."""
    try:
        call = next(node for node in ast.walk(ast.parse(linecache.getline(code.co_filename, line).strip())) if isinstance(node, ast.Call)
                    and any(word in ast.unparse(node.func) for word in ("gather", "pad_across", "reduce", "broadcast")))
        first = call.args[0]
        if isinstance(first, (ast.Tuple, ast.List)):
            return "values", [ast.unparse(part) for part in first.elts]
        return ast.unparse(first)[:40] if isinstance(first, (ast.Name, ast.Attribute, ast.Subscript)) else "values", []
    except (SyntaxError, StopIteration, IndexError):
        return "values", []
