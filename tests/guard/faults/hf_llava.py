"""Evaluation of a tiny LLaVA by the HF Trainer, in which one batch of one rank has other fields. "# here" marks what may be named."""
import json
import os

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, Trainer, TrainingArguments

from fault import STEPS, Fault

IMAGE = 63  # its token; an image has four of them

fault = Fault()


def none(wrong):
    return {"metadata": (torch.ones(1), torch.ones(1))}


def metadata_shorter(wrong):
    width, height = torch.full((1,), 3.0), torch.full((1,), 4.0)
    return {"metadata": (width,) if wrong else (width, height)}  # here


def metadata_2d(wrong):
    sizes = torch.ones(1, 2)
    return {"metadata": (sizes,) if wrong else (sizes, sizes)}  # here


def metadata_missing(wrong):
    return {} if wrong else {"metadata": torch.ones(1)}  # here


def metadata_words(wrong):
    return {"metadata": ["336x336"] if wrong else [torch.ones(1)]}  # here


def image_on_some(wrong):
    """What LLaVA gives by itself: its outputs hold image_hidden_states where the batch had an image."""
    return {"pixel_values": None} if wrong else {}  # here


def collate(rows):
    (number, ids, pixels), = rows
    more = globals()[fault.name](fault.strikes(number // fault.world))
    ids = torch.tensor([[5] * 4 + ids[4:] if "pixel_values" in more else ids])
    return {"input_ids": ids, "labels": ids.clone(), "pixel_values": pixels[None]} | more


torch.manual_seed(0)
model = LlavaForConditionalGeneration(LlavaConfig(
    vision_config=CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4),
    text_config=LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=64),
    image_token_index=IMAGE))
rows = [(number, [IMAGE] * 4 + [number % 60, 2, 3], torch.ones(3, 8, 8)) for number in range(STEPS * fault.world)]
names = ["labels"] if fault.name == "image_on_some" else ["labels", "metadata"]
names = json.loads(os.environ.get("FAULT_LABEL_NAMES", json.dumps(names)))  # as a diagnosis has said
ignored = json.loads(os.environ.get("FAULT_IGNORE_KEYS", "null"))
trainer = Trainer(model=model, eval_dataset=rows, data_collator=collate, compute_metrics=lambda _: {}, args=TrainingArguments(
    output_dir=fault.folder, per_device_eval_batch_size=1, label_names=names, remove_unused_columns=False, report_to=[], use_cpu=True,
    disable_tqdm=True, **({"ddp_timeout": fault.timeout} if fault.timeout else {})))
trainer.evaluate(ignore_keys=ignored)  # here: metadata_shorter, metadata_2d, metadata_missing, metadata_words, image_on_some
