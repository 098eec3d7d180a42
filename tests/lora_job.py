"""What stories about adapters share: runs that train one, and safetensors files read and changed by the standard library."""
import json
import struct

from small_job import losses, sft_words

ADAPTER = "adapter_model.safetensors"


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


def loss_of(model, rows):
    """Of all tokens that count, each alike."""
    import torch
    total, count = 0.0, 0
    for line in rows.read_text().splitlines():
        row = json.loads(line)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1]
        labels = torch.tensor(row["labels"][1:])
        total += torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum").item()
        count += int((labels != -100).sum())
    return total / count


def check_ranks_and_stages(story, model, rows, **flags):
    """zero0, 2 and 3 write the same bytes in a world of 1, 2 or 3 ranks, and all worlds the same numbers. Returns the adapter of one process."""
    found = {}
    for ranks in (1, 2, 3):
        for stage in ("zero0", "zero2", "zero3"):
            out = story.folder / f"{ranks}{stage}"
            story.lockstep(*lora_words(model, rows, out, nproc=ranks, deepspeed=stage, per_device_train_batch_size=6 // ranks, **flags), expect=0)
            found[ranks, stage] = ((out / "checkpoint-4" / ADAPTER).read_bytes(), losses(out))
        story.assertEqual(found[ranks, "zero0"], found[ranks, "zero3"], f"{ranks} ranks")
        story.assertEqual(found[ranks, "zero2"], found[ranks, "zero3"], f"{ranks} ranks")
    alone = read_tensors(story.folder / "1zero0" / "checkpoint-4" / ADAPTER)
    for ranks in (2, 3):
        for step, loss in found[ranks, "zero3"][1].items():
            story.assertAlmostEqual(loss, found[1, "zero0"][1][step], delta=1e-5, msg=f"{ranks} ranks, step {step}")
        together = read_tensors(story.folder / f"{ranks}zero3" / "checkpoint-4" / ADAPTER)
        story.assertLess(largest_difference(together, alone), 2e-4, f"{ranks} ranks")
    return alone
