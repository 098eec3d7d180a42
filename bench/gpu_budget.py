#!/usr/bin/env python3
"""What a training step queues on a GPU, beside transformers + FSDP2: kernels and bytes by phase, and the time that they would take.

  bench/gpu_budget.py [--model configs/Qwen2.5-7B] [--tokens 4096] [--world 8] [--out bench/results/gpu_budget.json] [--replace]

Nothing runs and no GPU is needed: both sides are counted over tensors that have shapes and no bytes (exec/step_work.h, and
peers/gpu_budget_peer.py over torch's fake ones). The model is full in training, bfloat16 with float32 masters, zero3 over WORLD ranks; what
ranks send each other is not counted. A model is taken as its first layer and as many more as it has. The time of a kernel is that of its
bytes or of its operations, whichever is longer, at the rates below: the least that it could be, with no gap between kernels.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import provenance
from run import HERE, PYTHON, environment

GPUS = {"H100": (3.35e12, 989e12), "H200": (4.8e12, 989e12)}  # bytes and operations of bfloat16 a second, as NVIDIA states them
WORKS = ("forward", "train", "train_again")
COUNTED = ("calls", "bytes", "flops")
PROGRAM = HERE.parent / "build/release/bin/gpu_budget"
SIDES = {"lockstep": [PROGRAM], "transformers + FSDP2": [PYTHON, HERE / "peers/gpu_budget_peer.py"]}


def counted(side, args, layers, work):
    words = [*SIDES[side], args.model, args.tokens, layers, args.world, work]
    done = subprocess.run([str(word) for word in words], env=environment(), text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def combined(a, b, times):
    """a + times * b, kernel by kernel."""
    def of(kernels, name, key):
        return kernels[name][key] if name in kernels else 0
    return {name: {key: of(a, name, key) + times * of(b, name, key) for key in COUNTED} for name in {*a, *b}}


def is_update(name):
    return "adamw" in name


def sums(kernels):
    return {key: sum(one[key] for one in kernels.values()) for key in COUNTED}


def seconds(kernels, gpu):
    moves, multiplies = GPUS[gpu]
    return sum(max(one["bytes"] / moves, one["flops"] / multiplies) for one in kernels.values())


def phases(works):
    """Of a layer or a model: forward, again, backward, update."""
    forward, train, again = (works[work] for work in WORKS)
    update = {name: one for name, one in train.items() if is_update(name)}
    backward = {name: one for name, one in combined(train, forward, -1).items() if name not in update}
    return {"forward": forward, "run again": combined(again, train, -1), "backward": backward, "update": update}


def side_of(side, args, layers):
    first, second = ({work: counted(side, args, n, work) for work in WORKS} for n in (1, 2))
    layer = {work: combined(second[work], first[work], -1) for work in WORKS}
    model = {work: combined(first[work], layer[work], layers - 1) for work in WORKS}
    return phases(layer), phases(model)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--model", type=pathlib.Path, default=HERE.parent / "configs/Qwen2.5-7B", help="a folder with a config.json")
    args.add_argument("--tokens", type=int, default=4096)
    args.add_argument("--world", type=int, default=8)
    provenance.add_flags(args, "gpu_budget.json")
    args = args.parse_args()
    provenance.check_place(args)
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM}: not there; tools/build.sh release gpu_budget")
    layers = json.loads((args.model / "config.json").read_text())["num_hidden_layers"]
    found = {side: side_of(side, args, layers) for side in SIDES}
    rows = []
    print(f"{args.model.name}, {args.tokens} tokens, zero3 over {args.world} ranks, blocks run again\n\nA decoder layer:\n")
    print("| phase | kernels | " + " | ".join(["FSDP2", "MB", "FSDP2"]) + " |\n| --- | --- | --- | --- | --- |")
    for phase in ("forward", "run again", "backward", "update"):
        ours, peer = (sums(found[side][0][phase]) for side in SIDES)
        rows.append({"of": "layer", "phase": phase, "ours": ours, "peer": peer})
        print(f"| {phase} | {ours['calls']} | {peer['calls']} | {ours['bytes'] / 1e6:.0f} | {peer['bytes'] / 1e6:.0f} |")
    print("\nA step, all of it:\n\n| | kernels | GB | " + " | ".join(f"ms on {gpu}, MFU" for gpu in GPUS) + " |\n| --- | --- | --- |" + " --- |" * len(GPUS))
    useful = 3 * sums(found["lockstep"][1]["forward"])["flops"]
    for side in SIDES:
        step = found[side][1]
        whole = [sums(kernels) for kernels in step.values()]
        times = {gpu: sum(seconds(kernels, gpu) for kernels in step.values()) for gpu in GPUS}
        mfu = {gpu: useful / GPUS[gpu][1] / times[gpu] for gpu in GPUS}
        rows.append({"of": "step", "side": side, "kernels": sum(one["calls"] for one in whole), "bytes": sum(one["bytes"] for one in whole),
                     "seconds": times, "mfu": mfu})
        print(f"| {side} | {rows[-1]['kernels']} | {rows[-1]['bytes'] / 1e9:.0f} | "
              + " | ".join(f"{1e3 * times[gpu]:.0f}, {100 * mfu[gpu]:.0f} %" for gpu in GPUS) + " |")
    provenance.write(args, rows, whole=True, model=args.model.name, tokens=args.tokens, world=args.world, layers=layers)


if __name__ == "__main__":
    main()
