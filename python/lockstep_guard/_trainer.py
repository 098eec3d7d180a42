"""What an evaluation of the HF Trainer gathers, by the names that it gathers it without, and where its rows come from."""
import functools
import json
from pathlib import Path

from ._places import locals_of, when_imported
from ._structures import nodes_of

batch = []                         # nodes of the batch that is evaluated
_output_names, _left_out = [], []  # of the last prediction: what is kept, and what is not
_collate = ""                      # of the last DataLoader that was walked


def tell():
    when_imported("transformers.trainer", _watch_predictions)
    when_imported("torch.utils.data.dataloader", _watch_collation)


def collation():
    """Where rows became a batch, in words; empty: nobody knows."""
    return _collate


def repairs(frame, title):
    """(names, fixes) by path: of the fields of the batch and of the outputs, where the Trainer gathers `title`. Nothing elsewhere."""
    out = {"title": title, "names": {}, "fixes": {}}
    fields = getattr(locals_of(frame).get("self"), "label_names", None) if batch else None
    for i, name in enumerate(fields or []):
        rest = [other for other in fields if other != name]
        fix = f"leave {name} out of what is gathered: TrainingArguments(label_names={json.dumps(rest)})" if rest else ""
        _repair(out, "labels", i, len(fields), f"batch[{name!r}]", name, f"{fix}{', or ' if fix else ''}let collation give it one structure on all ranks")
    for i, name in enumerate(_output_names if batch else []):
        keys = json.dumps([*_left_out, name])
        _repair(out, "logits", i, len(_output_names), f"outputs[{name!r}]", name,
                f"leave {name} out of what is gathered: trainer.evaluate(ignore_keys={keys}) and trainer.train(ignore_keys_for_eval={keys})")
    return out["names"], out["fixes"]


def _repair(out, title, i, count, path, name, fix):
    """Of a field, where it is gathered by its number and where the batch is compared. One alone is gathered as itself."""
    out["fixes"][path] = fix
    if out["title"] == title:
        part = f"[{i}]" if count > 1 else ""
        out["names"][part], out["fixes"][part] = name, fix


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

    def note_batch(trainer, inputs):
        batch[:] = [node for name in trainer.label_names or [] for node in nodes_of(inputs.get(name), f"batch[{name!r}]")]

    def note_outputs(trainer, outputs, ignore_keys):
        left_out = ignore_keys
        if left_out is None:
            left_out = getattr(getattr(trainer.model, "config", None), "keys_to_ignore_at_inference", ["past_key_values"])
        _left_out[:] = left_out
        _output_names[:] = [name for name in outputs if name != "loss" and name not in left_out] if isinstance(outputs, dict) else []
        batch.extend((f"outputs[{name!r}]", nodes_of(outputs[name])[0][1]) for name in _output_names)

    @functools.wraps(step)
    def told(self, model, inputs, *args, **kwargs):
        loss_only, ignore_keys = (kwargs.get(name, args[i] if len(args) > i else None) for i, name in enumerate(("prediction_loss_only", "ignore_keys")))
        if loss_only:  # nothing of these is gathered
            return step(self, model, inputs, *args, **kwargs)
        handle = None
        try:
            note_batch(self, inputs)
            handle = model.register_forward_hook(lambda _module, _inputs, outputs: _quietly(note_outputs, self, outputs, ignore_keys))
        except Exception:  # a batch of one's own class, say
            pass
        try:
            return step(self, model, inputs, *args, **kwargs)
        finally:
            if handle is not None:
                handle.remove()

    @functools.wraps(loop)
    def evaluated(*args, **kwargs):
        try:
            return loop(*args, **kwargs)
        finally:
            batch.clear()

    module.Trainer.prediction_step, module.Trainer.evaluation_loop = told, evaluated


def _quietly(function, *args):
    """What it raises is dropped, as what it returns is: a job is never worse off."""
    try:
        function(*args)
    except Exception:
        pass
