"""What stories about adapters share: runs that train one, and safetensors files read and changed by the standard library."""
import json
import struct

from small_job import sft_words


def lora_words(model, rows, output, steps=4, **flags):
    """The words of a run that trains adapters on the language model; numbers decide nothing by themselves."""
    return sft_words(model, rows, output, steps=steps,
                     **{"tuner_type": "lora", "freeze_vit": "true", "freeze_aligner": "true", "lora_dropout": 0.05, "save_steps": steps,
                        "learning_rate": "1e-2", "lora_rank": 4, "lora_alpha": 8, **flags})


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_tensors(path, tensors):
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def numbers(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def largest_difference(one, other):
    """Of two files of float32 tensors with the same names and shapes."""
    assert {name: entry[1] for name, entry in one.items()} == {name: entry[1] for name, entry in other.items()}
    return max(max((abs(a - b) for a, b in zip(numbers(one[name][2]), numbers(other[name][2]))), default=0) for name in one)


def make_id_rows(path, count=24, vocab=200):
    """Rows that are token ids already: what is trained and measured of them needs no tokenizer."""
    state = 12345
    with open(path, "w") as out:
        for i in range(count):
            ids = []
            for _ in range(5 + i % 6):
                state = (state * 1103515245 + 12345) % 2**31
                ids.append(5 + (state >> 8) % (vocab - 5))
            out.write(json.dumps({"input_ids": ids, "labels": [-100, -100] + ids[2:]}) + "\n")
    return path
