#!/usr/bin/env python3
"""Write tests/fixtures/text/token_flags.jsonl: what transformers makes of tokens to which tokenizer_config.json gives other flags than
tokenizer.json does.

  make_token_flags.py [--out tests/fixtures/text/token_flags.jsonl]

The first line has the tokenizers; each other one a tokenizer_config.json, texts, their ids, and what is read of these without special tokens.
"""
import argparse
import copy
import json
import tempfile
from pathlib import Path

from transformers import AutoTokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = ["a <s> b", "a<s>b", "<s>", "aZzb", "aZyb", "a Zz b", "a <x> b"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True, **flags}


def tokenizer(normalizer, pre_tokenizer, **flags):
    words = {word: i for i, word in enumerate(["a", "b", "<s>", "Zz", "\u0120", "z", "<", "s", ">", "Z", "x", "y"])}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": 2, **token("<s>", **flags)},
            {"id": 3, **token("Zz", normalized=True, special=False)}], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": None, "decoder": BYTES, "model": {"type": "BPE", "vocab": words, "merges": []}}


QWEN2 = ({"type": "NFC"}, {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": PRETOKENIZE_REGEX}, "behavior": "Isolated", "invert": False}, BYTES]})
Z_FOR_Y = {"type": "Replace", "pattern": {"String": "y"}, "content": "z"}
TOKENIZERS = {
    "z for y": tokenizer(Z_FOR_Y, BYTES),
    "qwen2": tokenizer(*QWEN2),
    "qwen2 strips": tokenizer(*QWEN2, lstrip=True),
    "strips": tokenizer(Z_FOR_Y, BYTES, lstrip=True),
}


def decoder(*tokens):
    return {"added_tokens_decoder": {str(i): t for i, t in zip((2, 3, 12), tokens)}}


CONFIGS = {
    "nothing": {},
    "the same": decoder(token("<s>")),
    "lstrip": decoder(token("<s>", lstrip=True)),
    "rstrip": decoder(token("<s>", rstrip=True)),
    "single_word": decoder(token("<s>", single_word=True)),
    "not special": decoder(token("<s>", special=False)),
    "not special, and named": {"bos_token": "<s>", **decoder(token("<s>", special=False))},
    "without flags": decoder({"content": "<s>"}),
    "no longer normalized": decoder(token("<s>"), token("Zz", special=False)),
    "special": decoder(token("<s>"), token("Zz")),
    "of another id": {"added_tokens_decoder": {"9": token("<s>", lstrip=True)}},
    "twice": {"added_tokens_decoder": {"2": token("<s>", lstrip=True), "9": token("<s>", rstrip=True)}},
    "a new one": decoder(token("<s>"), token("Zz", normalized=True, special=False), token("<x>", special=False, rstrip=True)),
    "a new one with a name": {"pad_token": "<x>", **decoder(token("<s>"), token("Zz", normalized=True, special=False), token("<x>", special=False))},
    "named with flags": {"bos_token": {"__type": "AddedToken", **token("<s>", lstrip=True)}},
    "named and stripped": {"bos_token": "<s>", **decoder(token("<s>", lstrip=True))},
    "named extra and stripped": {"extra_special_tokens": ["<s>"], **decoder(token("<s>", rstrip=True))},
}


def row(base, config):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZERS[base]))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        loaded = AutoTokenizer.from_pretrained(folder)
        ids = [loaded.encode(text, add_special_tokens=False) for text in TEXTS]
        return {"tokenizer": base, "config": config, "texts": TEXTS, "ids": ids,
                "skipped": [loaded.decode(one, skip_special_tokens=True) for one in ids]}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=ROOT / "tests" / "fixtures" / "text" / "token_flags.jsonl")
    args = ap.parse_args()
    lines = [TOKENIZERS]
    for base in TOKENIZERS:
        for config in CONFIGS.values():
            config = {**copy.deepcopy(config), "tokenizer_class": "Qwen2Tokenizer" if base.startswith("qwen2") else "PreTrainedTokenizerFast"}
            if "added_tokens_decoder" in config:           # as published folders do, it names all of them
                config["added_tokens_decoder"].setdefault("3", token("Zz", normalized=True, special=False))
            lines.append(row(base, config))
    args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{args.out}: {len(lines) - 1} configs")


if __name__ == "__main__":
    main()
