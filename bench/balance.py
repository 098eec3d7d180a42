#!/usr/bin/env python3
"""How evenly real jobs fill the devices that they drive, measured: counters of virtual devices, and the kernel's own count.

  bench/balance.py [--only training|inference|resident|plans] [--families qwen2,llava] [--out bench/results/balance.json] [--replace]

`bench/device_map.py` judges maps by the rehearsal that also made them. Here jobs run, on checkpoints with random weights of
24 decoder layers, and what is judged is what was held:

training   `lockstep sft` of every family that `lockstep init` makes, over 2, 3 and 4 virtual devices. Read is memory.json: the
           peak that the counters of each device have seen. Beside the map that was made ("levelled") stand the same blocks with
           masters and optimizer left beside them ("not levelled": the map's own placement, given back as a file) and an equal
           number of layers each. "levelling buys": by how much the largest peak falls from "not levelled" to "levelled".
inference  `lockstep embed`, `infer` (a file of prompts) and `eval` over the same devices: nothing can be moved there, so whole
           blocks decide. Where they are not within 1.10, by what was rehearsed, the run says so in a note with the best that
           they allow by what they cost alone; then that is the bar, within 5 % for what they do to each other beside.
resident   six of the training jobs once more, as the kernel counts: `resident_memory` (ninja resident_memory). One rank drives
           all of its devices in one process, by one thread, and has no form in which every device is a process of its own; so
           there is no VmHWM of one device. Instead the program maps every block of each virtual device (4 KiB or more) in a
           window of addresses of its own, and Rss of the mappings in a window, from /proc/self/smaps, read every 5 ms while
           the job runs, is the resident memory of that device. That count is the kernel's: it knows nothing of our counters,
           and counts pages that were touched, of blocks in use or waiting for the next taker.
plans      published configs (configs/), 2, 3, 4 and 8 devices, training of all weights, of adapters, and inference, as `lockstep
           plan` says: no job of 72 billion parameters runs here. With adapters and in inference nothing or little can be moved, and
           what whole blocks allow at best by what they cost alone is the bar, within 1 % for what they do to each other beside.

Exits with 1 where training is above 1.10, by counters or by the kernel, or the others above what whole blocks allow.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BIN") or ROOT / "build/release/bin/lockstep")
os.environ.setdefault("LOCKSTEP_BIN", str(LOCKSTEP))
sys.path[:0] = [str(HERE), str(ROOT / "tests")]
import provenance  # noqa: E402
from device_map import equal_layers  # noqa: E402
from small_job import make_rows  # noqa: E402

FAMILIES = ("qwen2", "llama", "llava", "qwen2_5_vl")
SEEING = ("llava", "qwen2_5_vl")
COUNTS = (2, 3, 4)
RESIDENT = [(family, count) for family in ("qwen2", "llava") for count in COUNTS]
LAYERS = 24
MOST = 1.10
BESIDE_WEIGHTS, BESIDE_COSTS = 1.05, 1.01
MIB, GIB = 2**20, 2**30


def run(program, *words, expect=0):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([str(program), *map(str, words)], env=env, capture_output=True, text=True, timeout=900)
    if done.returncode != expect:
        sys.exit(f"{program} {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done


def deepen(model, layers):
    """The checkpoint with its decoder layers again and again behind one another, till there are so many."""
    config = json.loads((model / "config.json").read_text())
    text = config.get("text_config", config)
    before, text["num_hidden_layers"] = text["num_hidden_layers"], layers
    if "max_window_layers" in text:
        text["max_window_layers"] = layers
    (model / "config.json").write_text(json.dumps(config))
    weights = model / "model.safetensors"
    data = weights.read_bytes()
    head = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + head]), data[8 + head:]
    made, parts, end = {}, [], 0
    layer_of = re.compile(r"^((?:language_model\.)?model\.layers\.)(\d+)(\..*)$")

    def add(name, tensor):
        nonlocal end
        begin, stop = tensor["data_offsets"]
        parts.append(body[begin:stop])
        made[name] = {**tensor, "data_offsets": [end, end + stop - begin]}
        end += stop - begin

    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        found = layer_of.match(name)
        if not found:
            add(name, tensor)
            continue
        for layer in range(int(found[2]), layers, before):
            add(f"{found[1]}{layer}{found[3]}", tensor)
    text = json.dumps(made).encode()
    text += b" " * (-len(text) % 8)
    weights.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    (model / "lockstep_manifest.json").unlink(missing_ok=True)


class Bench:
    def __init__(self, folder):
        self.folder, self.rows, self.failed = folder, [], []
        self.models = {}

    def model(self, family, size="small"):
        if (family, size) not in self.models:
            made = self.folder / f"{family}-{size}"
            run(LOCKSTEP, "init", "--family", family, "--size", size, "--torch_dtype", "float32", "--output_dir", made)
            if size == "small":
                deepen(made, LAYERS)
            self.models[family, size] = made
        return self.models[family, size]

    def data(self, family, count=24):
        return make_rows(self.folder, count=count, images=family in SEEING, name=f"rows-{family in SEEING}-{count}.jsonl")

    def judge(self, name, ratio, bar, row):
        self.rows.append({"name": name, **row})
        if ratio > bar:
            self.failed.append(f"{name}: {ratio:.3f}, allowed {bar:.3f}")
        return " " if ratio <= bar else "!"

    def sft_words(self, family, count, device_map, out):
        return ["--tuner_type", "full", "--model", self.model(family), "--dataset", self.data(family), "--output_dir", out, "--add_version", "false",
                "--overwrite_output_dir", "true", "--deepspeed", "zero0", "--device", "cpu", "--nproc", 1, "--virtual_devices", count,
                "--device_map", device_map, "--max_steps", 2, "--save_strategy", "no", "--report_to", "none", "--freeze_vit", "false",
                "--freeze_aligner", "false", "--gradient_accumulation_steps", 2 * count, "--per_device_train_batch_size", 1,
                "--torch_dtype", "float32"]

    def trained(self, family, count, device_map):
        """Peaks that the counters of the devices saw, and the run's folder."""
        if isinstance(device_map, dict):
            file = self.folder / "map.json"
            file.write_text(json.dumps(device_map))
            device_map = file
        out = self.folder / "out"
        run(LOCKSTEP, "sft", *self.sft_words(family, count, device_map, out))
        memory = json.loads((out / "memory.json").read_text())
        peaks = [peak["measured"] for peak in memory["peaks"] if peak["device"].startswith("virtual:")]
        assert len(peaks) == count, memory["peaks"]
        return peaks, out

    def training(self, families):
        print("| training, measured | devices | levelled | not levelled | equal layers | levelling buys |\n"
              "| --- | --- | --- | --- | --- | --- |")
        for family in families:
            for count in COUNTS:
                ours, out = self.trained(family, count, "auto")
                placed = {unit["name"]: unit["device"] for unit in json.loads((out / "plan.json").read_text())["units"]}
                whole = self.trained(family, count, placed)[0]
                equal = self.trained(family, count, equal_layers(self.model(family), count))[0]
                buys = 1 - max(ours) / max(whole)
                ratio = max(ours) / min(ours)
                mark = self.judge(f"training {family} on {count}: max/min of counted peaks", ratio, MOST,
                                  {"ours": ours, "not levelled": whole, "equal layers": equal, "ratio": round(ratio, 4),
                                   "levelling buys": round(buys, 4)})
                print(f"| {family} | {count} | {mark}{self.cell(ours)} | {self.cell(whole)} | {self.cell(equal)} | {100 * buys:.1f} % |",
                      flush=True)

    @staticmethod
    def cell(peaks):
        return f"{max(peaks) / max(1, min(peaks)):.3f} ({max(peaks) / MIB:.1f} MiB)"

    def inferred(self, verb, family, count):
        """Peaks that a run told at its end, in MiB, and the best that whole blocks allow, where it told that."""
        rows, model = self.data(family), self.model(family)
        words = {"embed": ["--dataset", rows, "--output", self.folder / "vectors", "--overwrite", "true"],
                 "infer": ["--val_dataset", rows, "--result_path", self.folder / "answers.jsonl", "--overwrite", "true",
                           "--max_new_tokens", 16],
                 "eval": ["--val_dataset", rows, "--max_new_tokens", 16, "--show", 0]}[verb]
        done = run(LOCKSTEP, verb, "--model", model, "--device", "cpu", "--nproc", 1, "--virtual_devices", count, "--device_map", "auto",
                   "--torch_dtype", "float32", "--batch_size", 4, *words)
        unit = {"KiB": 2**10, "MiB": MIB, "GiB": GIB}
        told = re.findall(r"memory: virtual:\d+ .*?measured ([\d.]+) (\wiB)", done.stderr)
        assert len(told) == count, done.stderr
        bound = re.search(r"no split of them over \d+ devices is below ([\d.]+) to 1", done.stderr)
        return [float(value) * unit[word] for value, word in told], float(bound[1]) if bound else None

    def inference(self, families):
        print("\n| inference, measured | devices | embed | infer | eval |\n| --- | --- | --- | --- | --- |")
        for family in families:
            for count in COUNTS:
                cells = []
                for verb in ("embed", "infer", "eval"):
                    peaks, bound = self.inferred(verb, family, count)
                    ratio = max(peaks) / min(peaks)
                    bar = max(MOST, bound * BESIDE_WEIGHTS) if bound else MOST
                    mark = self.judge(f"{verb} {family} on {count}: max/min of counted peaks", ratio, bar,
                                      {"ours": peaks, "ratio": round(ratio, 4), "whole blocks allow": bound})
                    cells.append(f"{mark}{self.cell(peaks)}" + (f", whole blocks allow {bound:.3f}" if bound else ""))
                print(f"| {family} | {count} | {' | '.join(cells)} |", flush=True)

    def resident(self):
        print("\n| training, the kernel's count | devices | resident, max/min | of each, kernel / counted peak | process above its start |\n"
              "| --- | --- | --- | --- | --- |")
        for family, count in RESIDENT:
            out = self.folder / "resident"
            run(LOCKSTEP.parent / "resident_memory", self.model(family, "tiny"), *self.sft_words(family, count, "auto", out))
            found = json.loads((out / "resident-0.json").read_text())
            kernel = [found["devices"][f"virtual:{d}"] for d in range(count)]
            counted = [peak["measured"] for peak in json.loads((out / "memory.json").read_text())["peaks"][:count]]
            ratio = max(kernel) / min(kernel)
            mark = self.judge(f"training {family} on {count}: max/min of resident bytes", ratio, MOST,
                              {"kernel": kernel, "counted": counted, "ratio": round(ratio, 4), "process": found["peak"] - found["before"]})
            each = ", ".join(f"{k / MIB:.1f} / {c / MIB:.1f}" for k, c in zip(kernel, counted))
            print(f"| {family} | {count} | {mark}{ratio:.3f} | {each} MiB | {(found['peak'] - found['before']) / MIB:.1f} MiB |", flush=True)

    def plans(self, configs):
        modes = {"training": ["--tuner_type", "full"], "adapters": ["--tuner_type", "lora"], "inference": ["--inference"]}
        print(f"\n| `lockstep plan` | devices | {' | '.join(modes)} |\n| --- | --- |{' --- |' * len(modes)}")
        for config in sorted(path.parent for path in configs.glob("*/config.json")):
            for count in (*COUNTS, 8):
                words = ["plan", "--model", config, "--nproc", 1, "--virtual_devices", count, "--device_map", "auto", "--deepspeed", "zero0",
                         "--torch_dtype", "bfloat16", "--freeze_vit", "false", "--freeze_aligner", "false",
                         "--gradient_accumulation_steps", 16, "--json"]
                cells = []
                for mode, flags in modes.items():
                    done = run(LOCKSTEP, *words, *flags)
                    peaks = [device["peak"] for device in json.loads(done.stdout)["memory"]["devices"][:count]]
                    ratio = max(peaks) / min(peaks)
                    row = {"ratio": round(ratio, 4), "peak": max(peaks)}
                    said = re.search(r"no split of them over \d+ devices is below ([\d.]+) to 1(?:; over (\d+) devices)?", done.stderr)
                    if said:
                        row["whole blocks allow"] = float(said[1])
                        row["devices that would be even"] = int(said[2]) if said[2] else None
                    bar = float(said[1]) * BESIDE_COSTS if said and mode != "training" else MOST
                    mark = self.judge(f"plan {config.name} on {count} devices, {mode}", ratio, bar, row)
                    allowed = f", {said[1]} allowed" if said else ""
                    cells.append(f"{mark}{ratio:.3f} ({max(peaks) / GIB:.1f} GiB{allowed})")
                print(f"| {config.name} | {count} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("training", "inference", "resident", "plans"))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--configs", type=pathlib.Path, default=ROOT / "configs")
    provenance.add_flags(parser, "balance.json")
    args = parser.parse_args()
    provenance.check_place(args)
    families = args.families.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(pathlib.Path(temporary))
        parts = {"training": lambda: bench.training(families), "inference": lambda: bench.inference(families),
                 "resident": bench.resident, "plans": lambda: bench.plans(args.configs)}
        for name, part in parts.items():
            if args.only in (None, name):
                part()
    provenance.write(args, bench.rows, whole=args.only is None and families == list(FAMILIES))
    for line in bench.failed:
        print(f"above the bar: {line}")
    print(f"\n{len(bench.rows)} cases, {len(bench.failed)} above the bar")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
