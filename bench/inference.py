#!/usr/bin/env python3
"""Embedding and generation beside Hugging Face transformers: the same checkpoint, the same prompts, 1 and 2 processes.

  bench/inference.py [--reps 3] [--new 64] [--dtype fp32] [--only NAME] [--size small] [--out bench/results/inference.json] [--replace]

64 prompts of 8 to 256 tokens to embed, 32 of them to answer. Each repetition runs each engine once, in turn. Two processes
of the peer each take half of the prompts, as people run it; Lockstep's two ranks share the model under ZeRO-3, in one memory
that both read (and, beside it, hold it whole). Figures: tokens a second of the work itself (loading left out), seconds from the start of the process to
the first result, and the peak of resident memory, summed over processes. In float32 the embeddings must agree within 1e-4
and the answers be the same texts, or the comparison is void; an answer may differ from where the peer's two best tokens lie
within 1e-3 of each other, which is told. Rows with pictures and sound (media_rows.py) are embedded by the families that
transformers has a class for, from their files on: both sides read, scale and spell them. `make bench` installs what the peer
needs.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import media_rows
import provenance
from run import HERE, LOCKSTEP, PYTHON, check_installed, environment, prepare, token

PROMPTS, ANSWERED, BATCH = 64, 32, 32
MEDIA_BATCH, MEDIA_TOLERANCE = 4, 1e-3  # pictures may differ by a level here and there


def write_prompts(data, vocab):
    """Rows of token ids in both readers' forms; lengths from 8 to 256, spread evenly and shuffled."""
    lengths = [8 + (token(7, i, 1 << 30) * 249) // (1 << 30) for i in range(PROMPTS)]
    rows = [[token(99, 1000 * i + t, vocab - 8) for t in range(n)] for i, n in enumerate(lengths)]
    (data / "prompts.jsonl").write_text("".join(json.dumps({"ids": row}) + "\n" for row in rows))
    for name, part in {"embed": rows, "generate": rows[:ANSWERED]}.items():
        (data / f"{name}.jsonl").write_text("".join(
            json.dumps({"input_ids": row, "labels": [-100] * len(row)}) + "\n" for row in part))
    return rows


def peak_of(process):
    """Waits for a process group's leader while its peak memory, children included, is watched; (seconds, MiB). Memory that
    processes share counts once."""
    peaks, shared, begun = {}, {}, time.time()
    while process.poll() is None:
        for pid in [process.pid, *children_of(process.pid)]:
            try:
                text = open(f"/proc/{pid}/status").read()
                peaks[pid] = max(peaks.get(pid, 0), int(re.search(r"VmHWM:\s+(\d+)", text)[1]))
                shared[pid] = max(shared.get(pid, 0), int(re.search(r"RssShmem:\s+(\d+)", text)[1]))
            except (OSError, TypeError):
                pass
        time.sleep(0.01)
    return time.time() - begun, (sum(peaks.values()) - sum(shared.values()) + max(shared.values(), default=0)) / 1024


def children_of(pid):
    try:
        return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


def ours(data, verb, words, ranks, stage, dtype, model=None):
    """One run of a verb; the words that it prints about itself."""
    out = data / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = [LOCKSTEP, verb, "--model", model or data / "small", "--torch_dtype", {"bf16": "bfloat16", "fp32": "float32"}[dtype],
               "--nproc", ranks, "--deepspeed", stage, "--comm_figures", "off", *words]
    process = subprocess.Popen([str(c) for c in command], env=environment(), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    seconds, peak = peak_of(process)
    text, problems = process.communicate()
    if process.returncode != 0:
        sys.exit(f"lockstep {verb} failed:\n{text}\n{problems}")
    rate = re.search(r"\((\d+(?:\.\d+)?) tokens/s\)", text)
    return {"rate": float(rate[1]), "tokens": int(re.search(r"(\d+) tokens", text)[1]), "seconds": seconds, "rss": peak}


def our_embedding(data, ranks, stage, dtype):
    words = ["--dataset", data / "embed.jsonl", "--output", data / "out", "--batch_size", BATCH // ranks]
    done = ours(data, "embed", words, ranks, stage, dtype)
    rows = [json.loads(line) for line in (data / "out/embeddings.jsonl").read_text().splitlines()]
    return {**done, "vectors": [row["embedding"] for row in rows]}


def our_answers(data, ranks, stage, dtype, new):
    words = ["--val_dataset", data / "generate.jsonl", "--result_path", data / "out/answers.jsonl", "--batch_size",
             ANSWERED // ranks]
    done = ours(data, "infer", [*words, "--max_new_tokens", new], ranks, stage, dtype)
    answers = [json.loads(line)["response"] for line in (data / "out/answers.jsonl").read_text().splitlines()]
    # The first answers: the same job with two tokens a row, from its start to its end.
    first = ours(data, "infer", [*words, "--max_new_tokens", 2], ranks, stage, dtype)
    return {**done, "first": first["seconds"], "answers": answers}


def theirs(data, script, ranks, words_of):
    """The peer's processes side by side, each with its share."""
    processes = []
    for rank in range(ranks):
        command = [PYTHON, HERE / "peers" / script, "--model", data / "small", "--data", data, *words_of(rank)]
        processes.append(subprocess.Popen([str(c) for c in command], env=environment(), text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE))
    results = []
    for process in processes:
        text, problems = process.communicate()
        lines = [line for line in text.splitlines() if line.startswith('{"peer"')]
        if process.returncode != 0 or not lines:
            sys.exit(f"{script} failed:\n{text[-2000:]}\n{problems[-3000:]}")
        results.append(json.loads(lines[-1]))
    return results


def their_embedding(data, ranks, dtype):
    share = PROMPTS // ranks
    results = theirs(data, "embed_peer.py", ranks, lambda rank: [
        "--dtype", dtype, "--batches", BATCH // ranks, "--prompts", share, "--skip", rank * share,
        "--save", data / f"peer{rank}.json"])
    vectors = [v for rank in range(ranks) for v in json.loads((data / f"peer{rank}.json").read_text())]
    return {"rate": sum(r["tokens"] for r in results) / max(r["seconds"] for r in results), "vectors": vectors,
            "first": max(r["first_result_s"] for r in results), "rss": sum(r["peak_rss_mib"] for r in results)}


def their_answers(data, ranks, dtype, new):
    share = ANSWERED // ranks
    results = theirs(data, "generate_peer.py", ranks, lambda rank: [
        "--dtype", dtype, "--batch", share, "--skip", rank * share, "--new", new, "--save", data / f"answers{rank}.json"])
    rows = [row for rank in range(ranks) for row in json.loads((data / f"answers{rank}.json").read_text())]
    return {"rows": rows, "rate": sum(r["new_tokens"] for r in results) / max(r["seconds"] for r in results),
            "first": max(r["process_to_first_result_s"] for r in results), "rss": sum(r["peak_rss_mib"] for r in results)}


def our_media(folder, dtype):
    words = ["--dataset", folder / "rows.jsonl", "--output", folder / "out", "--batch_size", MEDIA_BATCH]
    done = ours(folder, "embed", words, 1, "zero0", dtype, model=folder / "model")
    rows = [json.loads(line) for line in (folder / "out/embeddings.jsonl").read_text().splitlines()]
    return {**done, "vectors": [row["embedding"] for row in rows]}


def their_media(folder, family, dtype):
    result = theirs(folder, "embed_peer.py", 1, lambda _: ["--dtype", dtype, "--batches", MEDIA_BATCH, "--family", family,
                                                           "--prompts", media_rows.ROWS, "--save", folder / "peer.json"])[0]
    return {"rate": result["tokens_per_s"], "tokens": result["tokens"], "rss": result["peak_rss_mib"],
            "vectors": json.loads((folder / "peer.json").read_text())}


def bench_media(rows, args):
    for family in media_rows.FAMILIES:
        name = f"embed {family} with media"
        folder = media_rows.prepare(LOCKSTEP, args.data, family, args.size) if args.only in name else None
        if folder is None:
            continue
        mine, peer = [], []
        for _ in range(args.reps):
            mine.append(our_media(folder, args.dtype))
            peer.append(their_media(folder, family, args.dtype))
            if mine[-1]["tokens"] != peer[-1]["tokens"]:
                sys.exit(f"{name}: {mine[-1]['tokens']} tokens beside {peer[-1]['tokens']}; the comparison is void")
            if args.dtype == "fp32":
                check_vectors(mine[-1]["vectors"], peer[-1]["vectors"], tolerance=MEDIA_TOLERANCE)
        for key, what, more in (("rate", "tokens/s", True), ("rss", "peak memory, MiB", False)):
            report(rows, name, what, [r[key] for r in mine], [r[key] for r in peer], more)


def check_vectors(mine, peer, tolerance=1e-4):
    worst = max(abs(a - b) for x, y in zip(mine, peer) for a, b in zip(x, y))
    if len(mine) != len(peer) or worst > tolerance:
        sys.exit(f"embeddings differ by {worst:.2e}; the comparison is void")


def check_answers(mine, peer):
    """Texts up to where the peer itself hardly prefers one token to another; how many parted there."""
    if len(mine) != len(peer):
        sys.exit(f"{len(mine)} answers beside {len(peer)}; the comparison is void")
    parted = 0
    for i, (text, row) in enumerate(zip(mine, peer)):
        if text == row["text"]:
            continue
        sure = row["sure_text"]  # what came before the first near tie
        if sure is None or not text.startswith(sure):
            sys.exit(f"answer {i} differs; the comparison is void\n  ours  {text!r}\n  peer  {row['text']!r}")
        parted += 1
    return parted


def report(rows, name, what, mine, peer, more_is_better):
    ratios = [a / b for a, b in zip(mine, peer)]
    ratio = statistics.median(ratios)
    rows.append({"name": f"{name}: {what}", "ours": statistics.median(mine), "peer": statistics.median(peer),
                 "peer_name": "HF transformers", "ratio": ratio, "ratio_spread": [min(ratios), max(ratios)],
                 "more_is_better": more_is_better})
    print(f"{name:28} {what:26} ours {statistics.median(mine):9.2f}  HF {statistics.median(peer):9.2f}  ratio {ratio:6.2f} "
          f"[{min(ratios):.2f} {max(ratios):.2f}]", flush=True)


def bench_prompts(rows, args):
    model = prepare(args.data)
    write_prompts(args.data, json.loads((model / "config.json").read_text())["vocab_size"])
    for ranks in map(int, args.ranks.split(",")):
        for stage in ["zero0"] if ranks == 1 else ["zero0", "zero3"]:
            name = f"{ranks} process{'es' if ranks > 1 else ''} {stage}"
            if args.only not in name:
                continue
            mine, peer = {"embed": [], "generate": []}, {"embed": [], "generate": []}
            for _ in range(args.reps):
                mine["embed"].append(our_embedding(args.data, ranks, stage, args.dtype))
                peer["embed"].append(their_embedding(args.data, ranks, args.dtype))
                if args.dtype == "fp32":
                    check_vectors(mine["embed"][-1]["vectors"], peer["embed"][-1]["vectors"])
                mine["generate"].append(our_answers(args.data, ranks, stage, args.dtype, args.new))
                peer["generate"].append(their_answers(args.data, ranks, args.dtype, args.new))
                if args.dtype == "fp32":
                    parted = check_answers(mine["generate"][-1]["answers"], peer["generate"][-1]["rows"])
                    print(f"  {name}: {ANSWERED - parted} of {ANSWERED} answers are the same, {parted} part at a near tie", flush=True)
            for task in ("embed", "generate"):
                column = lambda results, key: [r[key] for r in results]  # noqa: E731
                report(rows, f"{task} {name}", "tokens/s", column(mine[task], "rate"), column(peer[task], "rate"), True)
                report(rows, f"{task} {name}", "peak memory, MiB", column(mine[task], "rss"), column(peer[task], "rss"), False)
            report(rows, f"generate {name}", "start to first answer, s", column(mine["generate"], "first"),
                   column(peer["generate"], "first"), False)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--reps", type=int, default=3)
    args.add_argument("--new", type=int, default=64)
    args.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    args.add_argument("--ranks", default="1,2")
    args.add_argument("--only", default="", help="cases whose name contains this")
    args.add_argument("--size", default="small", help="of the families with media")
    args.add_argument("--data", type=pathlib.Path, default=HERE / "data")
    provenance.add_flags(args, "inference.json")
    args = args.parse_args()
    provenance.check_place(args)
    check_installed()
    rows = []
    if "media" not in args.only:
        bench_prompts(rows, args)
    bench_media(rows, args)
    provenance.write(args, rows, repetitions=args.reps, dtype=args.dtype)


if __name__ == "__main__":
    main()
