#!/usr/bin/env python3
"""What the plan says a rank needs, beside what it then needs.

  bench/memory.py [--only WORD] [--size tiny|small] [--nproc 2] [--out bench/results/memory.json]

Families x ZeRO stages x whole or frozen tower x recompute on or off x three shapes of batch. Each case is a short training
run, whose memory.json holds the counted peak of every rank beside the prediction, and what the operating system says:
resident memory above the process before it loaded anything. Exits with 1 when a prediction is more than 5 % over or 2 %
under the counted peak.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BIN") or ROOT / "build/release/bin/lockstep")
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("LOCKSTEP_BIN", str(LOCKSTEP))
from small_job import make_rows  # noqa: E402

SHAPES = {"1 row": dict(rows=1, words=20, accumulation=2), "4 rows": dict(rows=4, words=60, accumulation=2),
          "2 long rows": dict(rows=2, words=400, accumulation=1)}


def lockstep(*words):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([LOCKSTEP, *map(str, words)], env=env, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def long_rows(folder, words, images):
    """Rows of about so many tokens, one in two with a picture where the family sees."""
    file = make_rows(folder, count=12, images=images, name=f"rows-{words}-{images}.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for i, row in enumerate(rows):
        text = " again" * (words - i)
        if "messages" in row:
            row["messages"][-1]["content"] += text
        else:
            row["response"] += text
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def cases(only):
    for family in ("qwen2", "llava"):
        for stage in ("zero0", "zero1", "zero2", "zero3"):
            for frozen in (False, True) if family == "llava" else (False,):
                for recompute in (True, False):
                    for shape in SHAPES:
                        name = f"{family} {stage} {'frozen tower' if frozen else 'whole'} {'recompute' if recompute else 'keep'} {shape}"
                        if only in name:
                            yield name, family, stage, frozen, recompute, shape


def run(folder, models, nproc, case):
    name, family, stage, frozen, recompute, shape = case
    rows, words, accumulation = SHAPES[shape].values()
    out = folder / name.replace(" ", "-")
    flag = lambda on: "true" if on else "false"  # noqa: E731
    lockstep("sft", "--model", models[family], "--dataset", long_rows(folder, words, family == "llava"), "--output_dir", out,
             "--add_version", "false", "--deepspeed", stage, "--nproc", nproc, "--max_steps", 3, "--save_strategy", "no",
             "--per_device_train_batch_size", rows, "--gradient_accumulation_steps", accumulation, "--report_to", "none",
             "--gradient_checkpointing", flag(recompute), "--freeze_vit", flag(frozen), "--freeze_aligner", "false",
             "--logging_steps", 1, "--max_length", 4096)
    memory = json.loads((out / "memory.json").read_text())
    peak = next(peak for peak in memory["peaks"] if peak["device"] == "cpu")
    resident = max(rank["resident_peak_bytes"] - rank["idle_bytes"] for rank in memory["ranks"])
    return {"case": name, "predicted": peak["predicted"], "measured": peak["measured"], "resident": resident,
            "ratio": peak["predicted"] / peak["measured"], "phase": peak["phase"], "at": peak["at"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--size", default="small")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results/memory.json")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        models = {}
        for family in ("qwen2", "llava"):
            models[family] = folder / family
            lockstep("init", "--family", family, "--size", args.size, "--torch_dtype", "float32", "--output_dir", models[family])
        for case in cases(args.only):
            result = run(folder, models, args.nproc, case)
            results.append(result)
            print(f"{result['case']:<52} predicted {result['predicted'] / 2**20:8.2f} MiB  measured "
                  f"{result['measured'] / 2**20:8.2f} MiB  ratio {result['ratio']:.4f}  resident above idle "
                  f"{result['resident'] / 2**20:8.2f} MiB", flush=True)
    ratios = [result["ratio"] for result in results]
    resident = [result["predicted"] / result["resident"] for result in results]
    print(f"\n{len(results)} cases: predicted / measured {min(ratios):.4f} to {max(ratios):.4f}, median "
          f"{statistics.median(ratios):.4f}; predicted / resident {min(resident):.3f} to {max(resident):.3f}")
    args.out.write_text(json.dumps({"size": args.size, "nproc": args.nproc, "cases": results}, indent=1) + "\n")
    sys.exit(0 if all(0.98 <= ratio <= 1.05 for ratio in ratios) else 1)


if __name__ == "__main__":
    main()
