"""A job that trains in seconds: a tiny random model, rows with and without drawn images, and readers of what a run writes."""
import json
import math
import shutil
import struct
import zlib

from story import FIXTURES, run


def wav(seconds, pitch=440, rate=16000):
    """A tone as 16-bit samples."""
    count = int(seconds * rate)
    samples = b"".join(struct.pack("<h", int(9000 * math.sin(2 * math.pi * pitch * i / rate))) for i in range(count))
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", len(samples))
    return head + samples


def png(width, height, colour):
    """A plain RGB picture as PNG bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make_model(folder, family="llava", dtype="float32", size="tiny"):
    """A small checkpoint; returns its folder."""
    done = run("init", "--family", family, "--size", size, "--torch_dtype", dtype, "--output_dir", folder / family)
    assert done.returncode == 0, done.text
    return folder / family


def original_llava(folder):
    """A tiny LLaVA as its authors publish one, with its tower beside it; returns the model's folder."""
    for part in ("checkpoint_original", "vision_tower"):
        shutil.copytree(FIXTURES / "oracle" / "odd" / "llava" / part, folder / part)
        for file in (folder / part).iterdir():
            file.chmod(0o644)
    return folder / "checkpoint_original"


def make_rows(folder, count=24, images=True, name="rows.jsonl"):
    """Questions of different lengths; two of three rows have a picture."""
    colours = {"red": (220, 20, 20), "green": (20, 180, 20), "blue": (20, 20, 220)}
    with open(folder / name, "w") as out:
        for i in range(count):
            colour = list(colours)[i % 3]
            if images and i % 3 != 2:
                (folder / f"{i}.png").write_bytes(png(20 + i, 30, colours[colour]))
                row = {"messages": [{"role": "user", "content": "<image>What colour is it?" + " Please." * (i % 4)},
                                    {"role": "assistant", "content": colour}], "images": [f"{i}.png"]}
            else:
                row = {"query": f"Say {i}." + " Now!" * (i % 5), "response": f"number {i}"}
            out.write(json.dumps(row) + "\n")
    return folder / name


def sft_words(model, rows, output, steps=8, **flags):
    """The words of a training run that logs every step and decides nothing by itself."""
    words = {"model": model, "dataset": rows, "output_dir": output, "max_steps": steps, "add_version": "false",
             "torch_dtype": "float32", "deepspeed": "zero3", "logging_steps": 1, "learning_rate": "1e-3",
             "freeze_vit": "false", "freeze_aligner": "false", "per_device_train_batch_size": 3,
             "gradient_accumulation_steps": 1, "warmup_steps": 2, "save_steps": 4, "report_to": "none", "tuner_type": "full", **flags}
    return ["sft", *(word for key, value in words.items() if value is not None for word in (f"--{key}", value))]


def records(run_folder):
    """The logged steps of logging.jsonl, by step; a line that is being written is none yet."""
    steps = {}
    text = (run_folder / "logging.jsonl").read_text()
    for line in text[:text.rfind("\n") + 1].splitlines():
        record = json.loads(line)
        if "loss" in record and "global_step/max_steps" in record:
            steps[int(record["global_step/max_steps"].split("/")[0])] = record
    return steps


def but_for_pace(stderr):
    """Without what is rightly told of a rank that the machine has kept waiting."""
    return "".join(line for line in stderr.splitlines(keepends=True) if "slower than the others" not in line)


def losses(run_folder):
    return {step: record["loss"] for step, record in records(run_folder).items()}


def tensors(path):
    """The bytes of each tensor of a file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    names = json.loads(data[8:8 + size])
    return {name: data[8 + size + one["data_offsets"][0]:8 + size + one["data_offsets"][1]] for name, one in names.items() if name != "__metadata__"}
