#!/usr/bin/env python3
"""How evenly device maps use their devices: ours, an equal number of layers each, and Accelerate's.

  bench/device_map.py [--configs DIR] [--only NAME] [--out bench/results/device_map.json]

For every config folder and 2, 3, 4 and 8 equal devices: the largest over the smallest of the devices' peak bytes, and the
largest peak. All maps are judged alike, by the bytes that training needs (bf16 compute, everything trained with AdamW, 8
micro-batches in the 1F1B order). "equal layers" splits the decoder layers evenly; what comes before them stands with the
first, the head with the last. "Accelerate" is get_balanced_memory and infer_auto_device_map on the meta model; it levels
bytes of weights alone. Levelling means that masters and optimizer state may stand away from their blocks. Fails when ours
is above 1.10 anywhere.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = ROOT / "build/release/bin"
PYTHON = ROOT / ".venv-bench/bin/python"
COUNTS = (2, 3, 4, 8)
MOST = 1.10
GIB = 2**30


def output_of(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def judged(config, count, device_map, level):
    """Ratio and largest peak of a map: a word, or a dict of names."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if isinstance(device_map, dict):
            json.dump(device_map, file)
            file.flush()
            device_map = file.name
        found = output_of(BIN / "device_map_peaks", config, count, device_map, "--level", int(level))
    peaks = found["peaks"]
    return {"ratio": round(max(peaks) / max(1, min(peaks)), 4), "peak": max(peaks), "moved": found.get("moved")}


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
    args.add_argument("--out", type=pathlib.Path, default=HERE / "results/device_map.json")
    args = args.parse_args()
    subprocess.run(["ninja", "-C", str(BIN.parent), "device_map_peaks"], check=True, stdout=subprocess.DEVNULL)
    rows, worst = [], 0.0
    print("| model | devices | ours | not levelled | equal layers | Accelerate | state that moves |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for config in sorted(args.configs.iterdir()):
        if args.only not in config.name or not (config / "config.json").exists():
            continue
        inferred = output_of(PYTHON, HERE / "peers/device_map_peer.py", config, *COUNTS)
        for count in COUNTS:
            row = {"name": f"{config.name} on {count} devices: max/min of peak bytes",
                   "ours": judged(config, count, "balanced", True),
                   "not levelled": judged(config, count, "balanced", False),
                   "equal layers": judged(config, count, equal_layers(config, count), False),
                   "Accelerate": judged(config, count, inferred[str(count)], False)}
            rows.append(row)
            worst = max(worst, row["ours"]["ratio"])
            cells = (f"{row[who]['ratio']:.3f} ({row[who]['peak'] / GIB:.1f} GiB)"
                     for who in ("ours", "not levelled", "equal layers", "Accelerate"))
            print(f"| {config.name} | {count} | {' | '.join(cells)} | {100 * row['ours']['moved']:.1f} % |", flush=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"\nworst of ours: {worst:.3f}, allowed {MOST:.2f}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
