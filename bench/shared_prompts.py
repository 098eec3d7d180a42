#!/usr/bin/env python3
"""What it saves to read once what prompts have in common, beside a build of before: the same rows, one thread, in turns.

  bench/shared_prompts.py --before LOCKSTEP [--reps 3] [--only NAME] [--dtype fp32] [--out bench/results/shared_prompts.json] [--replace]

Four questions about each of 16 pictures and of 8 long texts, a chat of 8 turns; and rows that have nothing in common, whose
prompts are cut into pieces for nothing. LOCKSTEP: the binary of a commit before, whose runs are the peer's. CPU seconds of whole runs.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass

import provenance
from media_rows import picture
from run import HERE, LOCKSTEP, prepare, token

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Case:
    name: str
    family: str  # of the model
    things: int = 0  # that are asked about; 0: a chat
    questions: int = 1  # about each


CASES = [Case("4 questions about a picture", "qwen2_5_vl", 16, 4), Case("1 question about a picture", "qwen2_5_vl", 32, 1),
         Case("4 questions about a text", "qwen2", 8, 4), Case("1 question about a text", "qwen2", 24, 1),
         Case("8 turns of a chat", "qwen2")]


def words(seed, count):
    """Tokens at random, as long a text as that; each of the small tokenizer's words."""
    return " ".join(f"{token(seed, i, 9000) + 1000:d}" for i in range(count))


def model_of(case, data):
    if case.family == "qwen2":
        return prepare(data)
    folder = data / f"{case.family}-small-model"
    if not folder.exists():
        subprocess.run([LOCKSTEP, "init", "--family", case.family, "--size", "small", "--torch_dtype", "float32", "--output_dir", folder],
                       check=True, capture_output=True)
    return folder


def write_rows(case, folder, vocab):
    """Rows of tokens of a text, of messages with a picture."""
    rows = []
    for thing in range(case.things):
        if case.family == "qwen2":
            text = [token(7 + thing, i, vocab - 8) for i in range(1100)]
        else:
            (folder / f"{thing}.png").write_bytes(picture(thing, 448, 420))
        for question in range(case.questions):
            if case.family == "qwen2":
                ids = text + [token(1000 + thing, 100 * question + i, vocab - 8) for i in range(30)]
                rows.append({"input_ids": ids, "labels": [-100] * len(ids)})
            else:
                rows.append({"messages": [{"role": "user", "content": f"<image>What is it, number {question} of {words(thing, 6)}?"}],
                             "images": [f"{thing}.png"]})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(binary, case, data, model, dtype):
    """CPU seconds of a whole run, and what was answered."""
    folder = data / "shared_prompts"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "answers.jsonl"
    for old in folder.glob("answers.jsonl*"):
        old.unlink()
    command = [binary, "infer", "--model", model, "--torch_dtype", DTYPES[dtype], "--nproc", "1", "--deepspeed", "zero0", "--max_new_tokens", "16"]
    said = None
    if case.things:
        write_rows(case, folder, json.loads((model / "config.json").read_text()).get("vocab_size", 2048))
        command += ["--val_dataset", folder / "rows.jsonl", "--result_path", out, "--batch_size", "8", "--max_length", "0"]
    else:
        said = "".join(f"{words(50 + turn, 40)}\n" for turn in range(8))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    answers = [json.loads(line)["response"] for line in out.read_text().splitlines()] if case.things else done.stdout.splitlines()
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, answers


def measured(case, data, args):
    model = model_of(case, data)
    ours, before, alike = [], [], 0
    for _ in range(args.reps):
        then, others = run(args.before, case, data, model, args.dtype)
        now, answers = run(LOCKSTEP, case, data, model, args.dtype)
        before.append(then)
        ours.append(now)
        alike = sum(a == b for a, b in zip(answers, others))
    ratios = [now / then for now, then in zip(ours, before)]
    row = {"name": f"{case.name}, {args.dtype}: CPU seconds", "unit": "s", "ours": statistics.median(ours), "peer": statistics.median(before),
           "peer_name": "before", "ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)], "same_answers": [alike, len(answers)]}
    print(f"{case.name:28} {args.dtype}  {row['ours']:7.2f} s, before {row['peer']:7.2f} s, ratio {row['ratio']:.2f} "
          f"[{min(ratios):.2f} {max(ratios):.2f}]; {alike} of {len(answers)} answers the same", flush=True)
    return row


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--before", type=pathlib.Path, required=True, help="the binary to compare with")
    args.add_argument("--reps", type=int, default=3)
    args.add_argument("--only", default="", help="cases whose name contains this")
    args.add_argument("--dtype", choices=DTYPES, default="fp32")
    args.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    provenance.add_flags(args, "shared_prompts.json")
    args = args.parse_args()
    provenance.check_place(args)
    rows = [measured(case, args.data, args) for case in CASES if args.only in case.name]
    provenance.write(args, rows, repetitions=args.reps)


if __name__ == "__main__":
    main()
