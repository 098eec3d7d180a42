"""What the healthy jobs have in common: who this rank is, a small model, and ranks that are late by chance."""
import os
import random
import time

import torch
from torch import nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder_of_job = None  # of all ranks, for what a kind saves
_lateness = None      # nobody is late


def draw_lateness(seed, kind):
    global _lateness
    _lateness = random.Random(f"{seed} {kind} {rank}")


def pace():
    """Once a step: one time in four this rank comes up to 0.3 s later."""
    if _lateness is not None and _lateness.random() < 0.25:
        time.sleep(0.3 * _lateness.random())


def small(width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))


class Rows(torch.utils.data.Dataset):
    """Drawn by their number alone, and read at a pace of this rank's own."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        pace()
        return torch.randn(8, generator=torch.Generator().manual_seed(index))


def trained(model, batches=None, lr=1e-2):
    """The losses of this rank."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    rows = torch.Generator().manual_seed(rank)
    losses = []
    for batch in [None] * 8 if batches is None else batches:
        pace()
        loss = model(torch.randn(4, 8, generator=rows) if batch is None else batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses



def tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                        vocab_size=64))


def token_rows(count):
    """Of uneven lengths."""
    rows = [[i % 60 + 1, 2, 3, i % 7, *range(5, 5 + i % 4)] for i in range(count)]
    return [{"input_ids": row, "labels": row} for row in rows]


def padded(rows):
    pace()
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(name, filler):
        return torch.tensor([row[name] + [filler] * (longest - len(row[name])) for row in rows])

    return {"input_ids": filled("input_ids", 0), "labels": filled("labels", -100),
            "attention_mask": torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows])}
