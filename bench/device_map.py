#!/usr/bin/env python3
"""How evenly device maps use their devices: ours, an equal number of layers each, and Accelerate's.

  bench/device_map.py [--configs DIR] [--only NAME] [--out bench/results/device_map.json]

For every config folder and 2, 3, 4 and 8 equal devices: the largest over the smallest of the devices' peak bytes, and the
largest peak. All maps are judged alike, by what `lockstep plan` rehearses for training (bf16 compute, everything trained with
AdamW, recompute, 16 micro-batches in the 1F1B order). "equal layers" splits the decoder layers evenly; what comes before them stands with the
first, the head with the last. "Accelerate" is get_balanced_memory and infer_auto_device_map on the meta model; it levels
bytes of weights alone. "not levelled" is our map without levelling, which means that masters and optimizer state may stand away from their blocks. Fails when ours
is above 1.10 anywhere.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import provenance

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOCKSTEP = ROOT / "build/release/bin/lockstep"
PYTHON = ROOT / ".venv-bench/bin/python"
COUNTS = (2, 3, 4, 8)
MOST = 1.10
GIB = 2**30


def output_of(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def judged(config, count, device_map):
    """Ratio and largest peak of a map (a word, or a dict of names), and the map."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if isinstance(device_map, dict):
            json.dump(device_map, file)
            file.flush()
            device_map = file.name
        plan = output_of(LOCKSTEP, "plan", "--model", config, "--nproc", 1, "--virtual_devices", count, "--device_map", device_map,
                         "--tuner_type", "full", "--deepspeed", "zero0", "--torch_dtype", "bfloat16", "--freeze_vit", "false", "--freeze_aligner",
                         "false", "--gradient_accumulation_steps", 16, "--json")
    peaks = [device["peak"] for device in plan["memory"]["devices"][:count]]
    placed = {unit["name"]: unit["device"] for unit in plan["units"]}
    state = [(unit["device"], device, end - begin) for unit in plan["units"] for device, begin, end in unit["optimizer"]]
    moved = sum(size for home, device, size in state if home != device) / sum(size for _, _, size in state)
    return {"ratio": round(max(peaks) / max(1, min(peaks)), 4), "peak": max(peaks), "moved": moved}, placed


def equal_layers(config, count):
    """A map in canonical names: decoder layers in even parts, those in front with the first, the head with the last."""
    text = json.loads((config / "config.json").read_text())
    family = text["model_type"]
    layers = text.get("text_config", text)["num_hidden_layers"]
    body, head = ("language_model.model", "language_model.lm_head") if family == "llava" else ("model", "lm_head")
    device_map = {"": 0, head: count - 1}
    for layer in range(layers):
        device_map[f"{body}.layers.{layer}"] = layer * count // layers
    return device_map


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--configs", type=pathlib.Path, default=ROOT / "configs")
    args.add_argument("--only", default="")
    provenance.add_flags(args, "device_map.json")
    args = args.parse_args()
    provenance.check_place(args)
    rows, worst = [], 0.0
    print("| model | devices | ours | not levelled | equal layers | Accelerate | state that moves |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for config in sorted(args.configs.iterdir()):
        if args.only not in config.name or not (config / "config.json").exists():
            continue
        inferred = output_of(PYTHON, HERE / "peers/device_map_peer.py", config, *COUNTS)
        for count in COUNTS:
            ours, placed = judged(config, count, "balanced")
            row = {"name": f"{config.name} on {count} devices: max/min of peak bytes", "ours": ours,
                   "not levelled": judged(config, count, placed)[0],
                   "equal layers": judged(config, count, equal_layers(config, count))[0],
                   "Accelerate": judged(config, count, inferred[str(count)])[0]}
            rows.append(row)
            worst = max(worst, row["ours"]["ratio"])
            cells = (f"{row[who]['ratio']:.3f} ({row[who]['peak'] / GIB:.1f} GiB)"
                     for who in ("ours", "not levelled", "equal layers", "Accelerate"))
            print(f"| {config.name} | {count} | {' | '.join(cells)} | {100 * row['ours']['moved']:.1f} % |", flush=True)
    provenance.write(args, rows)
    print(f"\nworst of ours: {worst:.3f}, allowed {MOST:.2f}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
