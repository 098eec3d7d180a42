#!/usr/bin/env python3
"""Write numerical oracles: tiny checkpoints in released formats plus reference inputs/outputs.

  make_oracles.py --out DIR --seed N --family NAME|all      write (default all)
  make_oracles.py --out DIR --verify [--family NAME|all]    reload every checkpoint and compare with the stored reference
  make_oracles.py --out DIR --seed N --sizes odd|random     other sizes of qwen2, llama, llava (and train_*)
  make_oracles.py --out DIR --tensors                       print every stored tensor with shape and meaning (markdown)

Everything is CPU-only, deterministic for a seed, and needs no network.
"""
import argparse
import os
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oraclelib.common import read_json, sha256, write_json  # noqa: E402
from oraclelib.sizes import KINDS  # noqa: E402
from oraclelib.tok import Tokenizers  # noqa: E402


def families():
    """name -> (make(ctx, name), verify(folder)); imported lazily so that one family can run alone."""
    import importlib
    table = {
        "qwen2": "fam_text", "llama": "fam_text", "mistral": "fam_text", "qwen3": "fam_text", "llava": "fam_llava",
        "qwen2_5_vl": "fam_qwen_vl", "qwen3_vl": "fam_qwen_vl", "internvl": "fam_internvl", "internvl_internlm2": "fam_internvl",
        "qwen2_5_omni": "fam_omni", "minicpm_v_2_6": "fam_minicpm", "minicpm_o_2_6": "fam_minicpm", "omnilmm": "fam_omnilmm",
        "tokenizers": "fam_tokenizers", "chat_templates": "fam_chat", "image_preprocess": "fam_images", "image_sizes": "fam_image_sizes",
        "audio_preprocess": "fam_audio", "train_qwen2": "fam_training", "train_llava": "fam_training",
        "lora_qwen2": "fam_lora", "lora_llama": "fam_lora", "lora_llava": "fam_lora", "lora_qwen2_5_vl": "fam_lora", "lora_internvl": "fam_lora",
        "qlora_qwen2": "fam_qlora", "qlora_llama": "fam_qlora", "qlora_llava": "fam_qlora", "qlora_qwen2_5_vl": "fam_qlora",
        "sentencepiece": "fam_sentencepiece", "sentencepiece_small": "fam_sentencepiece",
    }
    return {k: (lambda mod=v: importlib.import_module("oraclelib." + mod)) for k, v in table.items()}


class Context:
    def __init__(self, out, seed, sizes="default", vocab=640, images=60):
        self.out, self.seed, self.sizes, self.images = Path(out), seed, sizes, images
        self.toks = Tokenizers(seed, vocab=vocab, sp_vocab=max(672, vocab + 256))      # small vocabularies keep the checkpoints small


def deterministic(seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)            # fixed reduction order
    torch.use_deterministic_algorithms(True, warn_only=True)


def write_manifest(out, seed):
    import tokenizers
    import transformers
    files = {}
    for p in sorted(out.rglob("*")):
        if p.is_file() and p.name != "manifest.json":
            files[str(p.relative_to(out))] = {"bytes": p.stat().st_size, "sha256": sha256(p)}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    write_json(out / "manifest.json", {"seed": seed, "versions": versions, "files": files})
    return sum(f["bytes"] for f in files.values())


def check_manifest(out):
    manifest = read_json(out / "manifest.json")
    bad = [n for n, f in manifest["files"].items() if not (out / n).exists() or sha256(out / n) != f["sha256"]]
    return bad


def tensors_markdown(out):
    for ref in sorted(out.rglob("*.json")):
        if not ref.with_suffix(".safetensors").exists() or "tensors" not in read_json(ref):
            continue
        print(f"\n### {ref.parent.relative_to(out)}/{ref.stem}.safetensors\n\n| tensor | dtype | shape | meaning |\n|---|---|---|---|")
        for n, t in read_json(ref)["tensors"].items():
            print(f"| `{n}` | {t['dtype']} | {t['shape']} | {t['meaning']} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True, type=Path)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--family", default="all")
    ap.add_argument("--sizes", default="default", choices=KINDS)
    ap.add_argument("--vocab", type=int, default=640, help="of the byte-level BPE; SentencePiece gets 256 more, at least 672")
    ap.add_argument("--images", type=int, default=60, help="of image_sizes")
    ap.add_argument("--verify", action="store_true")
    ap.add_argument("--tensors", action="store_true")
    args = ap.parse_args()
    table = families()
    names = list(table) if args.family == "all" else args.family.split(",")
    if args.tensors:
        return tensors_markdown(args.out)
    failures = 0
    if not args.verify:
        args.out.mkdir(parents=True, exist_ok=True)
        ctx = Context(args.out, args.seed, args.sizes, args.vocab, args.images)
        for name in names:
            t0 = time.time()
            deterministic(args.seed)
            try:
                table[name]().make(ctx, name)
                print(f"[made] {name:18s} {time.time() - t0:6.1f}s", flush=True)
            except Exception:
                failures += 1
                traceback.print_exc()
                print(f"[FAIL] {name}", flush=True)
        total = write_manifest(args.out, args.seed)
        print(f"total {total / 2**20:.2f} MiB")
    else:
        if args.family == "all":
            bad = check_manifest(args.out)
            print(f"[{'ok' if not bad else 'FAIL'}] manifest: {len(bad)} missing or changed files {bad[:5]}")
            failures += bool(bad)
        for name in names:
            deterministic(0)
            try:
                rows = table[name]().verify(args.out / name)
                worst = max((r for r in rows), key=lambda r: r[1], default=("none", 0, True))
                nbad = [r for r in rows if not r[2]]
                failures += bool(nbad) or not rows
                print(f"[{'ok' if not nbad and rows else 'FAIL'}] {name:18s} {len(rows):5d} checks, {len(nbad)} failed; worst {worst[0]} {worst[1]:.3e}", flush=True)
                for r in nbad[:8]:
                    print("     ", r)
            except Exception:
                failures += 1
                traceback.print_exc()
                print(f"[FAIL] {name}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
