#!/usr/bin/env python3
"""Where the CPU seconds of a training step go, and what each part could not be below.

  bench/parts.py [--only "zero3 recompute fp32"] [--steps 12] [--out bench/results/parts.json] [--replace]

A case of bench/run.py under `perf record` (every process, the kernel too), once with few steps and once with more: the difference is
what steps take, without what begins and ends a run. Samples are told apart by symbol. Floors, measured in the same run: products by
LibTorch alone; the rest as bytes that must be moved over the rate at which as many processes copy memory at a time. Prints a table in
Markdown. Needs perf (Debian: linux-perf) and what run.py needs.
"""
import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

import provenance
from run import BATCH, CASES, HERE, PYTHON, SEQ, environment, lockstep_command, prepare, run_products

HERTZ, FEW = 499, 3
# The first that a sample's "library symbol" matches.
PARTS = [
    ("products", r"gemm|\[JIT\]|perf-\d+\.map|dnnl|mkl_|L_loop|packed_product|PackedProduct|multiply_panel|pack_straight|pack_turned|weave|narrow_product|widen|transpose"),
    ("attention", r"attention|softmax|scores"),
    ("head and loss", r"cross_entropy|log_sum|loss"),
    ("optimizer", r"adam"),
    ("norms, gates, turned heads, sums", r"norm|finite|swiglu|gelu|silu|rope|heads|binary_kernel|vectorized|vec::|loop2d|add_kernel|mul_kernel|sum_kernel"),
    ("between ranks", r"sum_parts|rank_sum|Shm|futex|wait_for"),
    ("pages of the kernel", r"kallsyms.*(page|fault|zap|unmap|folio|lru|mmap|mprotect|madvise|charge|memcg)"),
    ("copies", r"memmove|memcpy|memset|copy_kernel|copy_"),
    ("allocator", r"malloc|_int_|calloc|BlockArena|DeviceMemory|operator (new|delete)"),
    ("the rest of the kernel", r"kallsyms"),
    ("bookkeeping", r""),
]
COPY = """
import sys, time, torch
torch.set_num_threads(1)
a = torch.ones(int(sys.argv[1])); b = torch.empty_like(a)
b.copy_(a)
begun = time.process_time()
for _ in range(20): b.copy_(a)
print(2 * 4 * a.numel() * 20 / (time.process_time() - begun))
"""


def samples(case, model, dataset, steps, folder):
    """Samples of each part, and of each symbol in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    record = ["perf", "record", "-q", "-o", folder / "perf.data", "-F", HERTZ, "-e", "cpu-clock", "--"]
    done = subprocess.run([*map(str, record), *lockstep_command(folder / "run", model, dataset, case, steps)], env=environment(), text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"perf record or lockstep failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    script = subprocess.run(["perf", "script", "-i", folder / "perf.data", "-F", "ip,sym,dso"], text=True, capture_output=True, check=True)
    found = collections.defaultdict(collections.Counter)
    for line in script.stdout.splitlines():
        text = line.strip()
        if not text:
            continue
        symbol, _, library = text.partition(" ")[2].rpartition(" (")
        name = f"{library.rstrip(')')} {symbol}"
        found[next(part for part, words in PARTS if re.search(words, name))][name] += 1
    return found


def rate_of_copies(world):
    ranks = [subprocess.Popen([PYTHON, "-c", COPY, str(32 << 20)], env=environment(), text=True, stdout=subprocess.PIPE) for _ in range(world)]
    return min(float(rank.communicate()[0]) for rank in ranks)


def bytes_moved(config, case):
    """Of a rank and a step, in numbers of 4 bytes: each tensor read and written once where the part needs it."""
    hidden, inner, layers, vocab = (config[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"))
    heads = config["num_attention_heads"]
    qkv = (heads + 2 * config["num_key_value_heads"]) * (hidden // heads)
    params = layers * (qkv * hidden + hidden * hidden + 3 * hidden * inner) + 2 * vocab * hidden
    tokens = BATCH * SEQ
    forward = 2 * 2 * hidden + 2 * 3 * hidden + 2 * qkv + 3 * inner  # two norms, two sums, turned heads, a gate
    passes = 4 if case.recompute else 3  # the way back reads twice as much
    sharded = case.stage == "zero3"
    numbers = {"norms, gates, turned heads, sums": tokens * layers * forward * passes, "head and loss": 3 * tokens * vocab,
               "optimizer": 7 * params / (1 if case.stage == "zero0" else case.world),
               # gradients are staged and summed; sharded weights come twice
               "between ranks": 3 * params + (2 * 2 * params if sharded else 0)}
    return {part: 4 * count for part, count in numbers.items()}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default="zero3 recompute fp32", help="the case of run.py")
    args.add_argument("--steps", type=int, default=12)
    args.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    provenance.add_flags(args, "parts.json")
    args = args.parse_args()
    provenance.check_place(args)
    case = next((case for case in CASES if case.name == args.only and not case.family and not case.lora), None)
    if case is None:
        sys.exit(f"--only {args.only}: expected the name of a case of bench/run.py without media or adapters")
    model, dataset = prepare(args.data), args.data / "tokens.jsonl"
    few, more = (samples(case, model, dataset, steps, args.data / "parts") for steps in (FEW, FEW + args.steps))
    seconds = {part: (sum(more[part].values()) - sum(few[part].values())) / HERTZ / args.steps / case.world for part, _ in PARTS}
    rate = rate_of_copies(case.world)
    floors = {part: count / rate for part, count in bytes_moved(json.loads((model / "config.json").read_text()), case).items()}
    # Without instructions for bf16 LibTorch takes minutes there; ours are float32's of widened numbers then.
    widened = case.dtype == "bf16" and not {"avx512_bf16", "amx_bf16"} & set(provenance.cpu()["sets"])
    floors["products"] = run_products(model, case._replace(dtype="fp32") if widened else case, args.steps)
    total = sum(seconds.values())
    print(f"{case.name}: {total:.3f} CPU seconds a step and rank; {rate / 1e9:.1f} GB/s copied by each of {case.world} processes\n")
    print("| part | CPU seconds | of all | floor | largest |\n| --- | --- | --- | --- | --- |")
    rows = []
    for part, _ in PARTS:
        largest = [name.rpartition("/")[2] for name, _ in (more[part] - few[part]).most_common(2)]
        rows.append({"part": part, "seconds": seconds[part], "floor": floors.get(part), "largest": largest})
        floor = f"{floors[part]:.3f}" if part in floors else ""
        print(f"| {part} | {seconds[part]:.3f} | {100 * seconds[part] / total:.0f} % | {floor} | {', '.join(f'`{name[:60]}`' for name in largest)} |")
    provenance.write(args, rows, whole=True, case=case.name, steps=args.steps, copied_bytes_per_second=rate)


if __name__ == "__main__":
    main()
