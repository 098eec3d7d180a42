"""The model and the rows of the job rows, whole and with one thing wrong."""

import json
import shutil
import struct

from small_job import make_model, make_rows


def read_tensors(path):
    """name -> (dtype, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_tensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def changed_model(model, folder, change):
    """A copy of the model folder; `change(tensors, text_config)` edits both in place."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder / "model.safetensors")
    change(tensors, config["text_config"])
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def other_weights(tensors, _):
    name = "language_model.lm_head.weight"
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, shape, struct.pack("<f", 0.25) + data[4:])


def infinite_weight(tensors, _):
    name = "vision_tower.vision_model.embeddings.class_embedding"
    dtype, shape, data = tensors[name]
    huge = struct.pack("<f", 3e38)  # finite, or it would not be loaded; its square is not
    tensors[name] = (dtype, shape, huge + data[4:])


def wider(tensors, text_config):
    before = text_config["intermediate_size"]
    text_config["intermediate_size"] = before + 64
    for name, (dtype, shape, data) in list(tensors.items()):
        if ".mlp." in name and name.startswith("language_model") and before in shape:
            shape = [size + 64 if size == before else size for size in shape]
            tensors[name] = (dtype, shape, b"\0" * (4 * shape[0] * shape[1]))


def one_layer_more(tensors, text_config):
    last = text_config["num_hidden_layers"]
    text_config["num_hidden_layers"] = last + 1
    for name, tensor in list(tensors.items()):
        if f".layers.{last - 1}." in name and name.startswith("language_model"):
            tensors[name.replace(f".layers.{last - 1}.", f".layers.{last}.")] = tensor


class Files:
    """Made once for all rows."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.model = make_model(folder)
        self.rows = make_rows(folder, count=48)
        self.models = {
            change.__name__: changed_model(self.model, folder / change.__name__, change)
            for change in (other_weights, infinite_weight, wider, one_layer_more)
        }

    def checkpoint_bytes(self, ranks):
        """About what a checkpoint of the model takes: its weights, and three numbers of the optimizer for each."""
        return 4 * (self.model / "model.safetensors").stat().st_size + 20_000 * ranks + 40_000

    def rows_with_one_image(self, folder, at, count):
        """Text alone, but for one row."""
        image = next(json.loads(line) for line in self.rows.read_text().splitlines() if "images" in json.loads(line))
        lines = [json.dumps({"query": f"Say {i}.", "response": f"number {i}"}) for i in range(count)]
        lines[at] = json.dumps({**image, "images": [str(self.folder / image["images"][0])]})
        (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
        return folder / "rows.jsonl"
