"""Keywords as words of the command line, which alone knows what they mean."""
import json
import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any, Union

Flag = Union[None, bool, int, float, str, "os.PathLike[str]", Iterable[Any], Mapping[Any, Any]]

# Under their names of torch and transformers, where a model is opened in Python.
_OTHER_NAMES = {"dtype": "torch_dtype"}


def words_of(flags: "Mapping[str, Flag]") -> "list[str]":
    """None leaves a flag out; lists are several values; dicts are JSON, or NAME=DIR of adapters."""
    words: "list[str]" = []
    for name, value in flags.items():
        if name == "help":
            raise TypeError("help: is of the command line; here help(lockstep.sft) and docs/python.md say what there is")
        flag = "--" + _OTHER_NAMES.get(name, name)
        if value is None:
            continue
        values = _words_of_value(name, value)
        if not values:
            raise TypeError(f"{name}: expected at least one value, found an empty {type(value).__name__}")
        words += [f"{flag}={value}" for value in values]  # joined, so that it may begin with a dash
    return words


def _words_of_value(name: str, value: Flag) -> "list[str]":
    if isinstance(value, Mapping):
        if name == "adapters":
            for key in value:
                if "=" in str(key):
                    raise ValueError(f"adapters: expected names without an equals sign, found {key!r}")
            return [f"{key}={word_of(name, folder)}" for key, folder in value.items()]
        if name == "max_memory":
            return [",".join(f"{key}:{word_of(name, most)}" for key, most in value.items())]
        return [json.dumps(value, default=lambda part: _plain(name, part))]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray)) and getattr(value, "ndim", 1) != 0:
        return [word_of(name, one) for one in value]
    return [word_of(name, value)]


def word_of(name: str, value: Any) -> str:
    """One value, as a word."""
    value = _plain(name, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    word = repr(value) if isinstance(value, float) else str(value)
    if "\0" in word:
        raise ValueError(f"{name}: expected text without a byte of zero, found {word!r}")
    return word


def _plain(name: str, value: Any) -> "bool | int | float | str":
    if isinstance(value, bool):
        return value
    # Kinds of these, such as numpy's float64 and members of an Enum, have words of their own.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if type(value).__module__ == "torch" and str(value).startswith("torch."):  # torch.bfloat16
        return str(value).removeprefix("torch.")
    if isinstance(value, numbers.Number) and hasattr(value, "item"):  # numpy's
        return _plain(name, value.item())
    if type(value).__module__ in ("numpy", "torch") and getattr(value, "ndim", 1) == 0:
        return _plain(name, value.item())
    raise TypeError(f"{name}: expected a bool, number, text, path, list or dict, found {type(value).__name__}")
