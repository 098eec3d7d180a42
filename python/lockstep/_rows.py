"""Rows as a program holds them, as the JSON text of a data set."""
import ast
import base64
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
# Where media stand in a row; and within its turns and parts, where a part may also hold the bytes themselves.
_COLUMNS = frozenset({"image", "images", "video", "videos", "audio", "audios"})
# Columns of words: elsewhere at the top of a row, in what nobody may read, anything stands for itself.
_WORDS = frozenset({"query", "prompt", "question", "problem", "instruction", "input", "response", "answer", "output", "targets", "target", "answer_key",
                    "answers", "solution", "text", "completion", "content", "messages", "conversations", "conversation", "history", "system",
                    "system_prompt"})
_PARTS = _COLUMNS | {"image_url", "video_url", "audio_url", "input_audio", "url", "source", "bytes", "base64", "data", "frames"}


def rows_as_json(rows: "Iterable[Row]", columns: Any = None) -> "tuple[str, int]":
    """A JSON array of all rows, and how many there are. Pictures of PIL, and bytes, become data: URIs; they stand where media do, which
    `columns`, the flag, may call otherwise."""
    if isinstance(rows, (Mapping, str, bytes)):
        raise TypeError(f"rows: expected a list of dicts, found {'a dict' if isinstance(rows, Mapping) else type(rows).__name__}")
    texts, media = [], _COLUMNS | _renamed(columns)
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"rows[{i}]: expected a dict, found {type(row).__name__}")
        texts.append(json.dumps(_plain(row, f"rows[{i}]", media), ensure_ascii=False))
    return "[" + ",\n".join(texts) + "]", len(texts)


def _renamed(columns: Any) -> "set[str]":
    """Other names of columns of media. What is wrong with the flag, the program says."""
    if isinstance(columns, str):
        try:
            columns = ast.literal_eval(columns)  # JSON of texts, too
        except (SyntaxError, ValueError):
            return set()
    return {str(own).lower() for own, usual in columns.items() if str(usual).lower() in _COLUMNS} if isinstance(columns, Mapping) else set()


def _plain(value: Any, where: str, media: "frozenset[str]", is_medium: bool = False) -> Any:
    """`media`: the names that make what is below them media."""
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ValueError(f"{where}: expected a number that JSON can hold, found {value}")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: expected text as names of its fields, found {key!r}")
        return {_text(key, where): _plain(part, f"{where}.{key}", _PARTS, is_medium or key.lower() in media or (media is not _PARTS and key.lower() not in _WORDS)) for key, part in value.items()}
    is_picture = _is_picture(value)
    if not is_medium and (is_picture or isinstance(value, (bytes, bytearray, memoryview))):
        raise TypeError(f"{where}: expected text, found {'a picture' if is_picture else type(value).__name__}: media stand in images, videos or audios, or in "
                        "what columns={...} calls so; bytes of a text are value.decode()")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _data_uri(value)
    if isinstance(value, os.PathLike):
        return _text(str(os.fspath(value)), where)
    if is_picture:
        try:
            return _data_uri(_png(value))
        except Exception as error:
            raise ValueError(f"{where}: expected a picture that Pillow can read and write as PNG, found one of mode {value.mode} and size {value.size}: "
                             f"{error}") from error
    if isinstance(value, Sequence):
        return [_plain(part, f"{where}[{i}]", media, is_medium) for i, part in enumerate(value)]
    return _plain_array(value, where)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: expected text that UTF-8 can hold, found {value[:80]!a} ({error.reason})") from error
    return value


def _plain_array(value: Any, where: str) -> Any:
    """numpy's numbers, and token ids of numpy and torch."""
    kind = type(value).__module__.split(".")[0]
    dims = getattr(value, "ndim", None)
    whole = "int" in str(getattr(value, "dtype", ""))
    if kind in ("numpy", "torch") and (dims == 0 or (dims == 1 and whole)):
        return _plain(value.tolist(), where, _PARTS)
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(f"{where}: expected text, a number, a list, a dict, a path, bytes or a picture of PIL, found {type(value).__name__}{shape}")


def _is_picture(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # whoever has a picture has imported it
    return pillow is not None and isinstance(value, pillow.Image)


def _png(picture: Any) -> bytes:
    """Without loss; its pixels as they are, whatever its file says of how the camera was held."""
    if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        picture = picture.convert("RGB")
    out = io.BytesIO()
    picture.save(out, format="PNG", compress_level=1)
    return out.getvalue()


def _data_uri(content: "bytes | bytearray | memoryview") -> str:
    return "data:;base64," + base64.b64encode(content).decode()
