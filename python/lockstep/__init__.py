"""Lockstep: fine-tunes, evaluates and runs multimodal language models (docs/python.md).

Keywords are the flags of the command line: `lockstep.sft(model="m", dataset="rows.jsonl", num_train_epochs=1)` does what
`lockstep sft --model m --dataset rows.jsonl --num_train_epochs 1` does.
"""
from . import _torch

_torch.prepare()  # before anything that needs LibTorch

from . import _core  # noqa: E402
from ._error import Error, Notice  # noqa: E402
from ._flags import Flag  # noqa: E402
from ._jobs import embed, evaluate, infer, inspect, plan, sft  # noqa: E402
from ._model import Embeddings, Model  # noqa: E402
from ._rows import Row  # noqa: E402

_torch.check_loaded()

__version__: str = _core.version
__all__ = ["Embeddings", "Error", "Flag", "Model", "Notice", "Row", "embed", "evaluate", "infer", "inspect", "plan", "sft"]
