"""The rows of bench/media_rows.py as transformers reads them: processor, model class by family, batches with labels."""
import json
import os
import wave

import numpy as np
import torch
import transformers
from PIL import Image

IGNORED = -100


def model_class(family):
    """The class that answers; AutoModel does not know a thinker alone."""
    return {"qwen2_5_omni": transformers.Qwen2_5OmniThinkerForConditionalGeneration}.get(family, transformers.AutoModelForImageTextToText)


class Rows:
    """Batches of rows.jsonl of `folder`, prepared anew each time, as a loader does."""

    def __init__(self, folder):
        self.folder = folder
        self.processor = transformers.AutoProcessor.from_pretrained(os.path.join(folder, "model"))
        self.processor.tokenizer.padding_side = "right"
        with open(os.path.join(folder, "rows.jsonl")) as file:
            self.rows = [json.loads(line) for line in file]

    def clip(self, name):
        with wave.open(os.path.join(self.folder, name)) as file:
            return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768

    def messages(self, row, answered):
        question = row["messages"][0]["content"].replace("<image>", "").replace("<audio>", "")
        media = [{"type": "image"} for _ in row.get("images", [])] + [{"type": "audio"} for _ in row.get("audios", [])]
        asked = [{"role": "user", "content": [*media, {"type": "text", "text": question}]}]
        return [*asked, {"role": "assistant", "content": [{"type": "text", "text": row["messages"][1]["content"]}]}] if answered else asked

    def batch(self, indices, answered):
        rows = [self.rows[i % len(self.rows)] for i in indices]
        texts = [self.processor.apply_chat_template(self.messages(row, answered), tokenize=False, add_generation_prompt=not answered) for row in rows]
        media = {}
        pictures = [Image.open(os.path.join(self.folder, name)).convert("RGB") for row in rows for name in row.get("images", [])]
        clips = [self.clip(name) for row in rows for name in row.get("audios", [])]
        if pictures:
            media["images"] = pictures
        if clips:
            media["audio"] = clips
        inputs = dict(self.processor(text=texts, padding=True, return_tensors="pt", **media))
        if answered:
            inputs["labels"] = self.labels(inputs)
        return inputs

    def labels(self, inputs):
        """The last turn's words and the mark behind them: what stands between its head and the template's line break."""
        tokenizer = self.processor.tokenizer
        begin, end = (tokenizer.convert_tokens_to_ids(mark) for mark in ("<|im_start|>", "<|im_end|>"))
        head = len(tokenizer("<|im_start|>assistant\n", add_special_tokens=False).input_ids)
        labels = torch.full_like(inputs["input_ids"], IGNORED)
        for ids, learnt in zip(inputs["input_ids"], labels):
            first = int((ids == begin).nonzero()[-1]) + head
            last = int((ids == end).nonzero()[-1])
            learnt[first:last + 1] = ids[first:last + 1]
        return labels


def blocks_of(model):
    """What FSDP2 gathers at once: the layers of every tower and decoder."""
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            yield from (layer for layer in module if any(True for _ in layer.parameters()))
