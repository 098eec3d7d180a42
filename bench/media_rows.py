"""Rows with media for the benches: a fresh model of a family, pictures and clips as files, and rows that both sides read.

FAMILIES says which families transformers has a class for, and what their rows hold. All answers are equally long, so that the mean over
ranks, which the peers take, is the mean over tokens, which Lockstep takes.
"""
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from peer_util import token  # noqa: E402

FAMILIES = {"internvl": ("images",), "qwen2_5_omni": ("images", "audios")}
ROWS, ANSWER = 64, "A shape of one colour on another, and a sound as of rain."


def picture(number, width, height):
    """Noise over stripes, as PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((token(number, y * 3 * width + i, 256) // 2 + 60 * (y // 9 % 3)) % 256 for i in range(3 * width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def clip(number, seconds, rate=16000):
    """A tone under noise, as WAV of 16 bits."""
    samples = b"".join(struct.pack("<h", int(6000 * math.sin(i * (0.05 + 0.01 * number))) + token(number, i, 4000) - 2000)
                       for i in range(int(seconds * rate)))
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", len(samples)) + samples


def make_rows(folder, media):
    rows = []
    for i in range(ROWS):
        row, marks = {"id": f"{i}"}, ""
        if "images" in media:
            (folder / f"{i}.png").write_bytes(picture(i, 90 + 37 * (i % 5), 220 - 31 * (i % 4)))
            row["images"], marks = [f"{i}.png"], "<image>"
        if "audios" in media:
            (folder / f"{i}.wav").write_bytes(clip(i, 1.5 + 0.5 * (i % 4)))
            row["audios"], marks = [f"{i}.wav"], marks + "<audio>"
        question = f"What is it, number {i}?" + " Say it at length." * (i % 6)
        rows.append({**row, "messages": [{"role": "user", "content": marks + question}, {"role": "assistant", "content": ANSWER}]})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def prepare(lockstep, data, family, size="small"):
    """The family's folder below `data`, with "model" and "rows.jsonl"; None where this build does not know the family."""
    folder = data / f"{family}-{size}"
    rows = folder / "rows.jsonl"
    if not rows.exists() or len(rows.read_text().splitlines()) != ROWS:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = subprocess.run([lockstep, "init", "--family", family, "--size", size, "--torch_dtype", "float32", "--output_dir",
                               folder / "model"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            print(f"{family}: left out: {made.stderr.strip().splitlines()[0] if made.stderr else made.returncode}", flush=True)
            return None
        make_rows(folder, FAMILIES[family])
    return folder
