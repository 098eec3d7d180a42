"""Verbs of the program, each a process (or several ranks) of its own that gives back all that it has taken."""
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from . import _core, _torch
from ._error import Error
from ._flags import Flag, word_of, words_of
from ._rows import rows_as_json
from ._sigterm import Sigterm

Event = dict[str, Any]
OnEvent = Callable[[Event], Any]
PROGRAM = Path(__file__).parent / "bin" / "lockstep"


def sft(*, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """Fine-tunes a model: `lockstep sft` with its flags as keywords, on as many ranks as nproc says.

    on_event is called with each event as a dict; where it returns True the run ends after the step that it is in, with a checkpoint.
    Without it the lines of the terminal are printed. Returns {"output_dir", "last_checkpoint", "steps", "train_loss", "seconds",
    "interrupted"}. Ctrl-C stops it as on the command line: once with a checkpoint, twice without; SIGTERM with a checkpoint, and then ends the
    program. Rows of a data set may be given as dicts: they go to a file for as long as the run lasts. Called by every rank of torchrun, it is
    one run; the first has its result.
    """
    return run_verb("sft", flags, on_event)


def evaluate(*, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """Loss and metrics of a model on rows: `lockstep eval`. Returns what it prints with --json."""
    return run_verb("eval", flags, on_event)


def infer(*, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """Answers to a file of prompts, or to rows, on any number of ranks: `lockstep infer --val_dataset … --result_path …`. Of one question,
    prompt="…", it returns {"response"}."""
    if not any(flags.get(name) for name in ("val_dataset", "dataset", "input", "prompt")):
        raise TypeError("infer: expected val_dataset and result_path, or a prompt; a model that stays open is lockstep.Model(dir).generate(rows)")
    return run_verb("infer", flags, on_event)


def embed(*, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """Vectors of a file of rows, on any number of ranks: `lockstep embed`."""
    return run_verb("embed", flags, on_event)


def plan(*, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """What each rank of a job would hold and do: `lockstep plan --json`."""
    return run_verb("plan", flags, on_event)


def inspect(folder: "str | os.PathLike[str]", *, on_event: Optional[OnEvent] = None, **flags: Flag) -> "dict[str, Any]":
    """What a checkpoint's folder holds; what is wrong with it stands in "problems": `lockstep inspect --json`."""
    return run_verb("inspect", flags, on_event, word_of("folder", folder))


def _print(event: Event) -> None:
    if event.get("text"):
        print(event["text"], end="")
        _flush()


def _flush() -> None:
    """What stands for standard output, where anything does."""
    getattr(sys.stdout, "flush", lambda: None)()


def _is_true(answer: Any) -> bool:
    """True itself, or numpy's: a callback may return whatever it likes besides, such as what list.append or a lambda gives."""
    return answer is True or (type(answer).__module__ == "numpy" and type(answer).__name__ in ("bool", "bool_") and bool(answer))


class _Heard:
    """What a job has said."""

    def __init__(self, on_event: Optional[OnEvent]) -> None:
        self.on_event = on_event or _print
        self.result: "dict[str, Any] | None" = None
        self.error: "Event | None" = None

    def line(self, text: str) -> bool:
        said = json.loads(text)
        if said["event"] == "result":
            self.result = said["result"]
        elif said["event"] == "error":
            self.error = self.error or said
        else:
            return _is_true(self.on_event(said))
        return False


def search_path() -> str:
    """PATH with this Python in front: programs in Python that a run starts (metrics, trackers) have its packages, whether or not its environment is
    active."""
    return os.pathsep.join([str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])])


def run_verb(verb: str, flags: "Mapping[str, Flag]", on_event: Optional[OnEvent], *first: str) -> "dict[str, Any]":
    sigterm = Sigterm()
    return sigterm.run(lambda: _run_verb(verb, flags, on_event, sigterm, *first))


def _run_verb(verb: str, flags: "Mapping[str, Flag]", on_event: Optional[OnEvent], sigterm: Sigterm, *first: str) -> "dict[str, Any]":
    heard = _Heard(on_event)
    libraries = _torch.library_path()
    variables = {"PATH": search_path()}
    if libraries is not None:
        variables["LD_LIBRARY_PATH"] = libraries
    with _rows_in_files(flags, variables) as with_files:
        words = [str(PROGRAM), verb, *first, *words_of(with_files)]
        words = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *words]
        _flush()  # what the job still says of itself stands behind what was printed before
        code = _core.run_job(words, lambda line: heard.line(line) or sigterm.came)  # also where on_event has caught what was raised
    if heard.error is not None and code != 0:
        raise Error(heard.error["message"], heard.error["code"], heard.error["hint"], heard.error["frames"])
    if heard.result is not None:
        return heard.result
    if not code and os.environ.get("RANK", "0") != "0":  # one of many ranks, which somebody else has started: the first has it
        return {}
    raise _ended(verb, code)


def _ended(verb: str, code: "int | None") -> Error:
    if code is None:
        return Error(f"lockstep {verb} has ended, and nobody knows how", 70,
                     "this program ignores SIGCHLD, or waits for whatever child there is: signal.signal(signal.SIGCHLD, signal.SIG_DFL)")
    if code <= 128:
        return Error(f"lockstep {verb} ended with code {code} and has said no more", code or 70)
    name = signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else str(code - 128)
    hint = "the system kills what needs more memory than there is: lockstep.plan() says how much that is" if name == "SIGKILL" else ""
    return Error(f"lockstep {verb} was ended by {name}", code, hint)


@contextlib.contextmanager
def _rows_in_files(flags: "Mapping[str, Flag]", variables: "dict[str, str]") -> "Iterator[dict[str, Flag]]":
    """Data sets that are rows, as files under names that say what they are, so that a run knows them again."""
    out = dict(flags)
    given: "dict[str, Any]" = {name: flags[name] for name in ("dataset", "val_dataset", "input") if flags.get(name) is not None}
    for name, value in given.items():
        if isinstance(value, (Mapping, bytes)):
            raise TypeError(f"{name}: expected files, or rows as a list of dicts, found {'a dict' if isinstance(value, Mapping) else 'bytes'}")
    lists = {name: list(value) for name, value in given.items() if not isinstance(value, (str, os.PathLike))}
    rows = {name: value for name, value in lists.items() if value and isinstance(value[0], Mapping)}
    out.update(lists)
    if not rows:
        yield out
        return
    if len(rows) < len(given):
        raise TypeError(f"{' and '.join(given)}: expected both as rows, or both as files: relative paths of media begin where the "
                        "program stands, or where the file lies")
    variables.setdefault("ROOT_IMAGE_DIR", os.environ.get("ROOT_IMAGE_DIR") or os.getcwd())
    with tempfile.TemporaryDirectory(prefix="lockstep_rows_") as folder:
        for name, value in rows.items():
            out[name] = Path(folder) / f"{name}.json"
            Path(folder, f"{name}.json").write_text(rows_as_json(value, flags.get("columns"))[0], encoding="utf-8")
        yield out
