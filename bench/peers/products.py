#!/usr/bin/env python3
"""The matrix products of one training step of a Qwen2 model, alone, by LibTorch: what no engine that calls it can be below.

products.py CONFIG.json --tokens 512 --dtype fp32 [--recompute] [--steps 10]     prints CPU seconds a step, the median
"""
import argparse
import json
import pathlib
import statistics
import time

import torch


def shapes(config):
    """(inputs, outputs, how often in the model, computed again on the way back) of each matrix, fused as Lockstep has them."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    width = (heads + 2 * config["num_key_value_heads"]) * (hidden // heads)
    layers = config["num_hidden_layers"]
    block = [(hidden, width), (hidden, hidden), (hidden, 2 * inner), (inner, hidden)]
    return [(i, o, layers, True) for i, o in block] + [(hidden, config["vocab_size"], 1, False)]


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("config", type=pathlib.Path)
    args.add_argument("--tokens", type=int, required=True)
    args.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    args.add_argument("--recompute", action="store_true")
    args.add_argument("--steps", type=int, default=10)
    args = args.parse_args()
    torch.set_num_threads(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    work = []
    for inputs, outputs, count, again in shapes(json.loads(args.config.read_text())):
        x, w, g = (torch.randn(shape, dtype=dtype) for shape in ((args.tokens, inputs), (outputs, inputs), (args.tokens, outputs)))
        work.append((x, w, g, torch.empty_like(x), torch.empty_like(w), torch.empty_like(g), count, 2 if again and args.recompute else 1))
    took = []
    for _ in range(args.steps + 2):
        begun = time.process_time()
        for x, w, g, dx, dw, y, count, forwards in work:
            for _ in range(count):
                for _ in range(forwards):
                    torch.mm(x, w.t(), out=y)
                torch.mm(g, w, out=dx)
                torch.mm(g.t(), x, out=dw)
        took.append(time.process_time() - begun)
    print(statistics.median(took[2:]))


if __name__ == "__main__":
    main()
