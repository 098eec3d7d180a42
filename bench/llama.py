#!/usr/bin/env python3
"""Prompts read and answers written beside llama.cpp: the same weights, dtype and tokens, one thread each, in turn.

  bench/llama.py [--reps 3] [--only NAME] [--out bench/results/llama.json] [--replace]

Needs .venv-bench/bin/pip install llama-cpp-python==0.3.36 gguf==0.19.0, which builds llama.cpp for this processor (minutes). Figures are
tokens a second of the work itself: prompts of 512 tokens one after the other; one answer; 32 answers side by side; float32 and
bfloat16. llama.cpp keeps keys and values in the dtype of the weights here, as Lockstep does. How many answers are the same texts is
told; in float32 fewer than three quarters make the comparison void (a few part where two tokens are nearly equal; in bfloat16
both sides round, and one answer of 256 tokens parts soon).
"""
import argparse
import importlib.util
import json
import pathlib
import statistics
import sys
import typing

import provenance
from inference import ours, theirs
from run import HERE, check_installed, prepare, token


class Case(typing.NamedTuple):
    name: str
    prompts: int
    prompt: int  # tokens of each
    new: int     # 0: prompts are read alone


CASES = [Case("prompts of 512 tokens", 16, 512, 0), Case("one answer", 1, 8, 256), Case("32 answers side by side", 32, 8, 64)]


def rows_of(case, data, vocab):
    path = data / "llama.jsonl"
    rows = [[token(99, 1000 * i + t, vocab - 8) for t in range(case.prompt)] for i in range(case.prompts)]
    path.write_text("".join(json.dumps({"input_ids": row, "labels": [-100] * len(row)}) + "\n" for row in rows))
    return path


def mine_of(case, data, dtype, vocab):
    words = ["--val_dataset", rows_of(case, data, vocab), "--result_path", data / "out/answers.jsonl", "--batch_size",
             case.prompts if case.new else 1, "--max_new_tokens", case.new or 1]
    done = ours(data, "infer", words, 1, "zero0", dtype)
    answers = [json.loads(line)["response"] for line in (data / "out/answers.jsonl").read_text().splitlines()]
    seconds = done["tokens"] / done["rate"]
    return {"rate": case.prompts * (case.new or case.prompt) / seconds, "rss": done["rss"], "answers": answers}


def peers_of(case, data, dtype):
    saved = data / "llama.json"
    done = theirs(data, "llama_peer.py", 1, lambda _: ["--dtype", dtype, "--answers", case.prompts, "--new", case.new, "--prompt", case.prompt,
                                                       "--save", saved])[0]
    return {"rate": case.prompts * (case.new or case.prompt) / done["seconds"], "rss": done["peak_rss_mib"], "answers": json.loads(saved.read_text())}


def same_answers(mine, peer, model):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return sum(text == tokenizer.decode(words, skip_special_tokens=True) for text, words in zip(mine, peer))


def measured(case, dtype, data, model, reps):
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    mine, peer = [], []
    for _ in range(reps):
        mine.append(mine_of(case, data, dtype, vocab))
        peer.append(peers_of(case, data, dtype))
    ratios = [m["rate"] / p["rate"] for m, p in zip(mine, peer)]
    row = {"name": f"{case.name}, {dtype}", "unit": "tokens/s", "ours": statistics.median(r["rate"] for r in mine),
           "peer": statistics.median(r["rate"] for r in peer), "ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)],
           "ours_mib": max(r["rss"] for r in mine), "peer_mib": max(r["rss"] for r in peer)}
    print(f"{row['name']:30} ours {row['ours']:9.1f}  llama.cpp {row['peer']:9.1f} tokens/s  ratio {row['ratio']:.2f} "
          f"[{min(ratios):.2f} {max(ratios):.2f}]  {row['ours_mib']:.0f} beside {row['peer_mib']} MiB", flush=True)
    if case.new:
        row["same_answers"] = same_answers(mine[-1]["answers"], peer[-1]["answers"], model)
        print(f"  {row['same_answers']} of {case.prompts} answers are the same")
        if dtype == "fp32" and row["same_answers"] < 0.75 * case.prompts:
            sys.exit("the comparison is void")
    return row


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--reps", type=int, default=3)
    args.add_argument("--only", default="", help="cases whose name and dtype contain this")
    args.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    provenance.add_flags(args, "llama.json")
    args = args.parse_args()
    provenance.check_place(args)
    check_installed()
    if importlib.util.find_spec("llama_cpp") is None:
        sys.exit("llama.cpp: not there; .venv-bench/bin/pip install llama-cpp-python==0.3.36 gguf==0.19.0, and run this with .venv-bench/bin/python")
    model = prepare(args.data)
    rows = [measured(case, dtype, args.data, model, args.reps) for dtype in ("fp32", "bf16") for case in CASES
            if args.only in f"{case.name}, {dtype}"]
    provenance.write(args, rows, repetitions=args.reps, packages=provenance.packages("llama_cpp_python"))


if __name__ == "__main__":
    main()
