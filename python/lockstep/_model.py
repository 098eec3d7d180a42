"""A model that stays open in this process: answers and vectors of rows that the program holds."""
import atexit
import contextlib
import json
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _core, _jobs
from ._error import Error, Notice
from ._flags import Flag, words_of
from ._rows import Row, rows_as_json

if TYPE_CHECKING:
    import types

Folder = Union[str, "os.PathLike[str]"]
_open: "weakref.WeakSet[Model]" = weakref.WeakSet()


class Embeddings:
    """Vectors of rows, float32, in memory that numpy and torch share with it: numpy.asarray(v), torch.from_dlpack(v).

    As a whole it is [rows, width], or [tokens, width] with stage="inputs"; v[i] are those of row i. Where rows have none, `errors` says
    why, by index, and only v[i] and `array` (of the rows in `rows`) can be had: a whole would be of other rows than were given.
    """

    def __init__(self, found: "tuple[Any, int, list[int], list[int], dict[int, str]]", count: int, per_token: bool) -> None:
        self.array, self.width, self.rows, self.tokens, self.errors = found
        self._count, self._per_token = count, per_token
        self._places: "dict[int, slice]" = {}
        at = 0
        for row, tokens in zip(self.rows, self.tokens):
            self._places[row] = slice(at, at + (tokens if per_token else 1))
            at = self._places[row].stop
        self._vectors = at

    def __len__(self) -> int:
        return self._count

    @property
    def shape(self) -> "tuple[int, int]":
        self._whole()
        return self._vectors, self.width

    def __getitem__(self, row: "int | slice") -> Any:
        """A view, of numpy: [width], or [tokens, width]; of a slice of rows [rows, width]."""
        if isinstance(row, slice):
            if self._per_token:
                raise TypeError('with stage="inputs" a row has a vector a token: v[i] gives those of one row')
            return self.numpy()[row]
        row = range(self._count)[row]
        if row in self.errors:
            raise Error(self.errors[row], 3)
        values = _numpy().asarray(self.array)[self._places[row]]
        return values if self._per_token else values[0]

    def numpy(self) -> Any:
        return _numpy().asarray(self._whole())

    def torch(self) -> Any:
        from torch.utils.dlpack import from_dlpack

        return from_dlpack(self._whole())

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        values = self.numpy()
        if dtype is not None and dtype != values.dtype:
            if copy is False:
                raise ValueError(f"expected float32, which needs no copy, found dtype={dtype} beside copy=False")
            return values.astype(dtype)
        return values.copy() if copy else values

    def __dlpack__(self, *, copy: Optional[bool] = None, **asked: Any) -> Any:
        return (self.numpy().copy() if copy else self._whole()).__dlpack__(**asked)

    def __dlpack_device__(self) -> Any:
        return self._whole().__dlpack_device__()

    def _whole(self) -> Any:
        if not self.errors:
            return self.array
        first = min(self.errors)
        raise Error(f"{len(self.errors)} of {self._count} rows have no vector, the first: {self.errors[first]}", 3,
                    "leave them out, or take v[i] of single rows, or v.array, which has those of v.rows")


class Model:
    """A checkpoint's folder, loaded: `lockstep.Model("my-model", dtype="bfloat16", device="cpu", adapters={"a": "dir"})`.

    Keywords are the flags of `lockstep infer` that open a model. It is one process's: several ranks are for lockstep.infer and
    lockstep.embed. Threads may share it, and take turns. on_event is called with each event as a dict; without it notices become
    warnings; it cannot use the model. Use it in a `with`, or close() it, so that the next one has its memory before it is collected: the
    process keeps it.
    """

    def __init__(self, folder: "Folder | None" = None, *, dtype: Flag = None, device: "str | None" = None,
                 adapters: "Folder | Iterable[Folder] | Mapping[str, Folder] | None" = None,
                 on_event: Optional[_jobs.OnEvent] = None, **flags: Flag) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        self._on_event = on_event
        self._telling: "int | None" = None  # the thread that is in on_event: it waits for what it would ask for
        self._notices: "list[str]" = []  # of the call that is under way
        if "model" in flags:
            raise TypeError("model: expected one folder, and the first argument names it")
        words = words_of({"model": self.folder, "dtype": dtype, "device": device, "adapters": adapters, **flags})
        try:
            self._core = _core.Model(words, _told_by(weakref.ref(self)))
        except BaseException:
            self._warn(failed=True)
            raise
        _open.add(self)
        try:
            self._warn()
        except BaseException:  # warnings that are errors
            self.close()
            raise

    def generate(self, rows: "Iterable[Row]", *, max_new_tokens: "int | None" = None, temperature: "float | None" = None,
                 top_k: "int | None" = None, top_p: "float | None" = None, repetition_penalty: "float | None" = None,
                 seed: "int | None" = None, batch_size: "int | str | None" = None, **flags: Flag) -> "list[dict[str, Any]]":
        """Answers, one dict a row in their order: those of `lockstep infer --result_path`, the text as "response". A row that cannot
        be used has an "error" (strict=True raises it)."""
        words = words_of({"max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                          "repetition_penalty": repetition_penalty, "seed": seed, "batch_size": batch_size, **flags})
        text, _ = self._rows_to_read(rows, flags)
        try:
            answers: "list[dict[str, Any]]" = json.loads(self._core.answer(text, words))
        except BaseException:
            self._warn(failed=True)
            raise
        self._warn()
        return answers

    def embed(self, rows: "Iterable[Row]", *, pooling: "str | None" = None, normalize: "bool | None" = None, stage: "str | None" = None,
              batch_size: "int | str | None" = None, **flags: Flag) -> Embeddings:
        """Vectors: those of `lockstep embed`, bit for bit."""
        words = words_of({"pooling": pooling, "normalize": normalize, "stage": stage, "batch_size": batch_size, **flags})
        text, count = self._rows_to_read(rows, flags)
        try:
            found = self._core.embed(text, words)
        except BaseException:
            self._warn(failed=True)
            raise
        self._warn()
        return Embeddings(found, count, per_token="--stage=inputs" in words)

    def inspect(self, **flags: Flag) -> "dict[str, Any]":
        """What its folder holds: lockstep.inspect. Its weights' hashes were compared when it was opened; verify=True does it again."""
        if self.folder is None:
            raise Error("the model was opened by its adapters, and has no folder of its own to inspect", 2, "lockstep.inspect(folder)")
        return _jobs.run_verb("inspect", {"verify": False, **flags}, None, self.folder)

    def close(self) -> None:
        self._refuse_own_events()
        self._core.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "types.TracebackType | None") -> None:
        self.close()

    def _rows_to_read(self, rows: "Iterable[Row]", flags: "Mapping[str, Flag]") -> "tuple[str, int]":
        self._refuse_own_events()
        for name in sorted(flags.keys() & {"max_samples", "dataset_dir", "custom_dataset_info"}):
            raise TypeError(f"{name}: is of files of rows, and here the rows themselves are given: leave it out")
        return rows_as_json(rows, flags.get("columns"))

    def _refuse_own_events(self) -> None:
        if self._telling == threading.get_ident():
            raise RuntimeError("a model cannot be used from its own on_event, which it waits for: use it when the call is over")

    def _tell(self, event: _jobs.Event) -> None:
        if self._on_event is not None:
            self._telling = threading.get_ident()
            try:
                self._on_event(event)
            finally:
                self._telling = None
        elif event["event"] == "notice":
            self._notices.append(event["message"])

    def _warn(self, failed: bool = False) -> None:
        """On the thread that has asked, of the line that called: the one that tells has none of the program's. Beside another error none of
        them is one."""
        notices, self._notices = self._notices, []
        for text in notices:
            with contextlib.suppress(*([Notice] if failed else [])):
                warnings.warn(text, Notice, stacklevel=3)


def _told_by(model: "weakref.ref[Model]") -> Any:
    """Without a circle that would keep the model."""

    def tell(text: str) -> None:
        alive = model()
        if alive is not None:
            alive._tell(json.loads(text))

    return tell


def _numpy() -> Any:
    import numpy

    return numpy


@atexit.register
def _close_all() -> None:
    """While there is still a Python to end a thread in."""
    _core.call_off_all()
    for model in list(_open):
        model._core.close_now()
