"""What the small jobs train: a model with a part that a batch may leave out, and rows of a disk that may not answer."""
import time

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, deep=0):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.vision_tower = nn.Linear(16, 24)
        self.connector = nn.Linear(24, 16)
        self.deep = nn.ModuleList(nn.Linear(16, 16) for _ in range(deep))
        self.head = nn.Linear(16, 1)

    def forward(self, rows, with_image=True):
        hidden = self.body(rows).relu()
        if with_image:
            hidden = hidden + self.connector(self.vision_tower(hidden))  # here: tower_unused, tower_unused_in_turn
        for layer in self.deep:
            hidden = layer(hidden)
        return self.head(hidden)


class Rows(torch.utils.data.Dataset):
    def __init__(self, stalled, count=4):
        self.stalled, self.count = stalled, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(600 if self.stalled else 0)
        return torch.ones(8)
