"""Nests of values, node by node: what ranks are about to gather one by one, or to have in common.

A call carries a label, which is compared with those of the other ranks before anything moves. Of a nest it changes with every node, and the
nest is shown beside it, as guard/structure.h reads it, so that the first difference can be told.
"""
import collections.abc
import hashlib
import json

MOST_BYTES = 7600

_shown = collections.deque(maxlen=12)  # labels that those who compare have, fewer than they keep


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


def show(native, kind, title, nodes, **more):
    """To those who compare, within its room. Returns the label."""
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
