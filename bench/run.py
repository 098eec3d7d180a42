#!/usr/bin/env python3
"""Lockstep beside its peers: the same checkpoint, the same token file, 2 CPU ranks, interleaved repetitions.

  bench/run.py [--reps 3] [--steps 10] [--only NAME] [--size small] [--out bench/results/latest.json] [--replace]

Every repetition runs each engine once, in turn, so that a change of the machine's mood meets all of them. The primary
figure is CPU seconds per step (all threads of rank 0): steadier than wall time where ranks share cores. The losses of all
engines must agree, or the comparison is void. Peers: Hugging Face transformers with DDP, FSDP2 and DeepSpeed ZeRO-3, AdamW
fused. In bf16 each engine is measured twice, all with gradients that travel between ranks in float32 ("reduced in fp32"),
and all in bf16. Beside them stand the products of a step alone: no engine that calls LibTorch for them can be below.
Families with towers (media_rows.py: pictures, sound) train rows with media beside FSDP2; both prepare them within the step.
Adapters (LoRA of rank 8 on every matrix of the layers, begun alike from one folder of peft) stand beside transformers with peft in
one process and beside FSDP2 with peft, and, in one process, beside our own training of every weight.
`make bench` installs what they need.
"""
import argparse
import array
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import typing

import provenance

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOCKSTEP = ROOT / "build/release/bin/lockstep"
PYTHON = ROOT / ".venv-bench/bin/python"
sys.path.insert(0, str(HERE / "peers"))
from media_rows import FAMILIES, prepare as prepare_family  # noqa: E402
from peer_util import token  # noqa: E402

BATCH, SEQ, ROWS, WARMUP = 2, 256, 16, 2


class Case(typing.NamedTuple):
    name: str
    stage: str                 # Lockstep's
    recompute: bool
    dtype: str                 # of the computation
    reduce: str                # of gradients between ranks
    peers: list
    family: str | None = None  # with media
    lora: bool = False
    world: int = 2


CASES = [
    Case("zero3 recompute bf16, reduced in fp32", "zero3", True, "bf16", "fp32", ["fsdp2", "deepspeed3"]),
    Case("zero3 recompute bf16, reduced in bf16", "zero3", True, "bf16", "bf16", ["fsdp2", "deepspeed3"]),
    Case("zero3 recompute fp32", "zero3", True, "fp32", "fp32", ["fsdp2", "deepspeed3"]),
    Case("zero0 bf16, reduced in fp32", "zero0", False, "bf16", "fp32", ["ddp"]),
    Case("zero0 bf16, reduced in bf16", "zero0", False, "bf16", "bf16", ["ddp"]),
    Case("zero0 fp32", "zero0", False, "fp32", "fp32", ["ddp"]),
    *(Case(f"LoRA, one process, {dtype}", "zero0", False, dtype, "fp32", ["none", "full"], lora=True, world=1) for dtype in ("fp32", "bf16")),
    *(Case(f"LoRA zero3 {dtype}", "zero3", False, dtype, "fp32", ["fsdp2"], lora=True) for dtype in ("fp32", "bf16")),
    *(Case(f"{family} zero3 {dtype}", "zero3", False, dtype, "fp32", ["fsdp2"], family) for family in FAMILIES for dtype in ("fp32", "bf16")),
]
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
TITLES = {"fsdp2": "HF + FSDP2", "ddp": "HF + DDP", "deepspeed3": "HF + DeepSpeed ZeRO-3", "none": "HF", "full": "ours, every weight"}
# losses may differ by the rounding of bf16 compute; in fp32 by the order of sums
LOSS_TOLERANCE = {"fp32": 2e-4, "bf16": 2e-2}


def environment():
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
               HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TORCH_EXTENSIONS_DIR=str(HERE / "data/ext"))
    return env


def prepare(data):
    """A random `small` checkpoint (31.5 M parameters) and 16 rows of token ids, in both readers' forms."""
    data.mkdir(parents=True, exist_ok=True)
    model = data / "small"
    if not (model / "config.json").exists():
        subprocess.run([LOCKSTEP, "init", "--family", "qwen2", "--size", "small", "--torch_dtype", "float32",
                        "--output_dir", model], check=True)
        subprocess.run([PYTHON, HERE / "peers/make_model.py", model], check=True, env=environment())
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    ids = [[token(1234, r * SEQ + t, vocab) for t in range(SEQ)] for r in range(ROWS)]
    with open(data / "tokens.i32", "wb") as f:
        array.array("i", [t for row in ids for t in row]).tofile(f)
    (data / "tokens.json").write_text(json.dumps({"rows": ROWS, "seq": SEQ, "vocab": vocab, "seed": 1234}))
    with open(data / "tokens.jsonl", "w") as f:
        for row in ids:
            f.write(json.dumps({"input_ids": row, "labels": row}) + "\n")
    return model


def check_installed():
    for needed in (LOCKSTEP, PYTHON):
        if not needed.exists():
            sys.exit(f"{needed}: not there; run `make build` and tools/setup.sh bench (or `make bench`)")


def prepare_adapter(data, model):
    """One that changes nothing yet, as peft begins it: where all start from."""
    adapter = data / "adapter"
    if not adapter.exists():
        subprocess.run([PYTHON, HERE / "peers/make_adapter.py", model, adapter], check=True, env=environment())
    return adapter


def lockstep_command(out, model, dataset, case, steps, adapter=None):
    flag = {True: "true", False: "false"}
    command = [LOCKSTEP, "sft", "--nproc", case.world, "--model", model, "--dataset", dataset,
               "--output_dir", out, "--add_version", "false", "--deepspeed", case.stage,
               "--torch_dtype", DTYPES[case.dtype], "--reduce_dtype", DTYPES[case.reduce],
               "--gradient_checkpointing", flag[case.recompute], "--per_device_train_batch_size", BATCH,
               "--gradient_accumulation_steps", 1, "--dataset_shuffle", "false", "--max_steps", steps,
               "--learning_rate", "1e-4", "--lr_scheduler_type", "constant", "--adam_beta1", "0.9", "--adam_beta2", "0.999",
               "--weight_decay", "0.01", "--max_grad_norm", "0", "--logging_steps", 1, "--save_strategy", "no",
               "--report_to", "none", "--split_dataset_ratio", "0"]
    if dataset.name != "tokens.jsonl":  # towers and projectors learn as well
        command += ["--freeze_vit", "false", "--freeze_aligner", "false", "--vit_gradient_checkpointing", flag[case.recompute]]
    if adapter is not None:
        command += ["--tuner_type", "lora", "--adapters", adapter, "--lora_dropout", 0]
    else:
        command += ["--tuner_type", "full"]
    return [str(word) for word in command]


def run_lockstep(data, model, dataset, case, steps, adapter=None):
    out = data / "run"
    shutil.rmtree(out, ignore_errors=True)
    start = time.time()
    process = subprocess.Popen(lockstep_command(out, model, dataset, case, steps, adapter), env=environment(), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    first, log = None, []
    for line in process.stdout:
        log.append(line)
        if first is None and "loss" in line and f"/{steps}" in line:
            first = time.time() - start
    if process.wait() != 0 or first is None:
        sys.exit("lockstep failed:\n" + "".join(log[-30:]))
    records = [json.loads(line) for line in open(out / "logging.jsonl")]
    records = [r for r in records if "loss" in r and "cpu_seconds_per_step" in r]
    return {"cpu": statistics.median(r["cpu_seconds_per_step"] for r in records[WARMUP:]),
            "wall": statistics.median(r["train_speed(s/it)"] for r in records[WARMUP:]),
            "rss": max(records[-1]["peak_bytes"]) / 2**20, "first": first, "losses": [r["loss"] for r in records]}


def run_peer(data, model, engine, case, steps, adapter=None):
    command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", case.world,
               HERE / "peers/train_peer.py", "--engine", engine, "--model", model, "--data", data, "--dtype", case.dtype,
               "--reduce", case.reduce, "--steps", steps, "--warmup", WARMUP, "--batch", BATCH, "--seq", SEQ]
    command += ["--checkpointing"] if case.recompute else []
    command += ["--family", case.family] if case.family else []
    command += ["--adapter", adapter] if adapter is not None else []
    done = subprocess.run([str(c) for c in command], env={**environment(), "PEER_T0": str(time.time())}, text=True,
                          capture_output=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"engine"')]
    if done.returncode != 0 or not lines:
        sys.exit(f"{engine} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    r = json.loads(lines[-1])
    return {"cpu": r["cpu_s"], "wall": r["step_s"], "rss": max(r["peak_rss_mib"]), "first": r["from_launch_s"],
            "losses": r["losses"]}


def run_products(model, case, steps):
    """CPU seconds of a rank for the products of a step and nothing else, while the other ranks make theirs."""
    command = [PYTHON, HERE / "peers/products.py", model / "config.json", "--tokens", BATCH * SEQ, "--dtype", case.dtype, "--steps", steps]
    command += ["--recompute"] if case.recompute else []
    ranks = [subprocess.Popen([str(c) for c in command], env=environment(), text=True, stdout=subprocess.PIPE) for _ in range(case.world)]
    texts = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit(f"{' '.join(map(str, command))}: failed")
    return float(texts[0])


def check_losses(name, ours, theirs, dtype):
    worst = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"]))
    if worst > LOSS_TOLERANCE[dtype]:
        sys.exit(f"{name}: losses differ by {worst:.2e} (tolerance {LOSS_TOLERANCE[dtype]:.0e}); the comparison is void\n"
                 f"  ours  {ours['losses']}\n  peer  {theirs['losses']}")
    return worst


def summary(values):
    return f"{statistics.median(values):.3f} [{min(values):.3f} {max(values):.3f}]"


def add_products(rows, name, ours, products):
    ratios = [a / b for a, b in zip(ours, products)]
    rows.append({"name": f"{name}: CPU seconds of the products alone", "ours": statistics.median(ours),
                 "peer": statistics.median(products), "peer_name": "LibTorch's products", "unit": "s",
                 "ratio": statistics.median(ours) / statistics.median(products), "ratio_spread": [min(ratios), max(ratios)]})
    print(f"{name:22} {'products alone, CPU seconds':28} ours {summary(ours):24} {'products':22} {summary(products):24} "
          f"ratio {rows[-1]['ratio']:.2f}", flush=True)


def add_peer(rows, name, peer, results):
    for key, what, unit in [("cpu", "CPU seconds per step", "s"), ("wall", "wall seconds per step", "s"),
                            ("rss", "peak resident memory", "MiB"), ("first", "launch to end of first step", "s")]:
        ours, theirs = ([r[key] for r in results[who]] for who in ("ours", peer))
        ratios = [a / b for a, b in zip(ours, theirs)]
        rows.append({"name": f"{name}: {what}", "ours": statistics.median(ours),
                     "peer": statistics.median(theirs), "peer_name": TITLES[peer],
                     "ratio": statistics.median(ours) / statistics.median(theirs), "unit": unit,
                     "ratio_spread": [min(ratios), max(ratios)]})
        print(f"{name:22} {what:28} ours {summary(ours):24} {TITLES[peer]:22} {summary(theirs):24} "
              f"ratio {rows[-1]['ratio']:.2f} [{min(ratios):.2f} {max(ratios):.2f}]", flush=True)


def chosen(only):
    """Cases by a part of their names. In bf16 LibTorch takes minutes a step where the processor does not multiply it: only when asked for."""
    cases = [case for case in CASES if only in case.name]
    if "bf16" in only or {"avx512_bf16", "amx_bf16"} & set(provenance.cpu()["sets"]):
        return cases
    quick = [case for case in cases if case.dtype != "bf16"]
    if len(quick) < len(cases):
        print(f"{len(cases) - len(quick)} cases in bf16 are left out: the peers take minutes a step in it on this CPU; --only bf16 measures them", flush=True)
    return quick


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--reps", type=int, default=3)
    args.add_argument("--steps", type=int, default=10)
    args.add_argument("--only", default="", help="cases whose name contains this; bf16 where the CPU does not multiply it")
    args.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    args.add_argument("--size", default="small", help="of the families with media")
    provenance.add_flags(args, "latest.json")
    args = args.parse_args()
    provenance.check_place(args)
    check_installed()
    rows = []
    for case in chosen(args.only):
        folder = prepare_family(LOCKSTEP, args.data, case.family, args.size) if case.family else args.data
        if folder is None:
            continue
        model, dataset = (folder / "model", folder / "rows.jsonl") if case.family else (prepare(args.data), args.data / "tokens.jsonl")
        adapter = prepare_adapter(args.data, model) if case.lora else None
        results = {engine: [] for engine in ["ours", *case.peers]}
        products = []
        for rep in range(args.reps):
            results["ours"].append(run_lockstep(args.data, model, dataset, case, args.steps, adapter))
            for peer in case.peers:
                if peer == "full":
                    results[peer].append(run_lockstep(args.data, model, dataset, case, args.steps))
                    continue
                results[peer].append(run_peer(folder, model, peer, case, args.steps, adapter))
                check_losses(f"{case.name} vs {peer}", results["ours"][-1], results[peer][-1], case.dtype)
            if not case.family and not case.lora:
                products.append(run_products(model, case, args.steps))
            print(f"  {case.name}: repetition {rep + 1} of {args.reps} done", flush=True)
        if products:
            add_products(rows, case.name, [r["cpu"] for r in results["ours"]], products)
        for peer in case.peers:
            add_peer(rows, case.name, peer, results)
    provenance.write(args, rows, steps=args.steps, repetitions=args.reps)


if __name__ == "__main__":
    main()
