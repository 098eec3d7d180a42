"""Oracle of tokenizers that are a tokenizer.model alone: SentencePiece models trained with several options, each with the files that
stand beside it in released folders; fuzz.jsonl and decode.jsonl as in fam_tokenizers. `sentencepiece_small` is what the fixtures hold:
fewer rows, and a table of characters of a few rules (those of NFKC have 250 kB)."""
import io
import json
import random
import shutil
import tempfile
from pathlib import Path

from . import corpus
from .common import fresh_dir, write_json, write_jsonl
from .slow_pieces import SlowTokenizer

RULES = {"Ａ": "A", "ﬁ": "fi", "é": "É", "e\u0301": "É", "\u3000": " ", "①": "1 ", "\u200d": "", "…": "...", "ß": "ss", "ab": "AB", "\t": "  "}
SYMBOLS = {"user_defined_symbols": ["<sep>", "ab", "abc", " x", "the end", "é", "▁y z"], "control_symbols": ["<ctl>", "[MASK]"]}
OPTIONS = {      # of the training, over those of `train`
    "llama": {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_digits": True,
              "allow_whitespace_only_pieces": True},
    "nfkc": {"normalization_rule_name": "nmt_nfkc"},
    "symbols": {"byte_fallback": True, "normalization_rule_name": "nfkc_cf", "split_by_whitespace": False, **SYMBOLS},
    "plain": {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False, **SYMBOLS},
}


def token(content, special=True, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special, **flags}


def files(top):
    """Kind of folder -> the options of its model, and its files; `top` is the size of the vocabulary."""
    usual = {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}
    return {
        "bare": ("llama", {}),
        "llava": ("llama", {"tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True, "pad_token": "<pad>",
            "additional_special_tokens": ["<image>"], "added_tokens_decoder": {
                **usual, str(top): token("<image>"), str(top + 1): token("<pad>"),
                str(top + 2): token("<word>", special=False, single_word=True), "7": token("<seven>")}}}),
        "vicuna": ("llama", {"tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "legacy": False, "bos_token": {"__type": "AddedToken", **token("<s>")},
            "eos_token": {"__type": "AddedToken", **token("</s>")}, "unk_token": {"__type": "AddedToken", **token("<unk>")},
            "pad_token": None, "sp_model_kwargs": {}, "clean_up_tokenization_spaces": False},
            "special_tokens_map.json": {"bos_token": token("<s>"), "eos_token": token("</s>"), "pad_token": "<unk>",
                                        "additional_special_tokens": ["<|start|>", token("<x>", lstrip=True, rstrip=True)]},
            "added_tokens.json": {"<|start|>": top, "<plain>": top + 1}}),
        "internlm2": ("nfkc", {"tokenizer_config.json": {
            "tokenizer_class": "InternLM2Tokenizer", "additional_special_tokens": ["<|start|>", "<img>"], "add_eos_token": False,
            "added_tokens_decoder": {**usual, str(top): token("<|start|>"), str(top + 1): token("<img>"),
                                     str(top + 2): token("<plain>", special=False, lstrip=True, rstrip=True)}}}),
        "symbols": ("symbols", {"tokenizer_config.json": {
            "legacy": False, "mask_token": "[MASK]", "clean_up_tokenization_spaces": True, "sep_token": "<new>", "add_bos_token": False,
            "added_tokens_decoder": {**usual, str(top): token("<|start|>", special=False)}}}),
        "plain": ("plain", {"tokenizer_config.json": {"add_prefix_space": False, "add_bos_token": False},
                            "special_tokens_map.json": {"eos_token": "<|end|>", "additional_special_tokens": ["<|end|>", "<|start|>"]},
                            "added_tokens.json": {"<|end|>": top, "<plain>": top + 1}}),
    }


def train(seed, vocab, options, rules):
    import sentencepiece as spm
    lines = [ln for t in corpus.training_text(seed) for ln in t.split("\n") if 2 < len(ln) < 1500]
    buf, options = io.BytesIO(), dict(options)
    with tempfile.TemporaryDirectory() as made:
        if rules and options["normalization_rule_name"] != "identity":
            path, name = Path(made) / "rules.tsv", options.pop("normalization_rule_name")
            spell = lambda text: " ".join(f"{ord(c):X}" for c in text)  # noqa: E731
            more = {c: c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} if name == "nfkc_cf" else {}
            path.write_text("".join(f"{spell(old)}\t{spell(new)}\n" for old, new in {**RULES, **more}.items()), encoding="utf-8")
            options["normalization_rule_tsv"] = str(path)
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=buf, model_type="bpe", vocab_size=vocab, character_coverage=0.98, num_threads=1,
            minloglevel=2, max_sentence_length=8192, shuffle_input_sentence=False, **options)
    return buf.getvalue()


def texts(rng, tokens, count, longest):
    base = [s for s in corpus.fuzz_strings(rng.randrange(1 << 20)) if len(s) <= longest]
    letters = [c for s in base for c in s] + list("    \n▁▁ＡﬁéÉ①…ßab\x1c\u3000")
    odd = [" ", "  ", "\n", "▁", " . ", " n't", "\x1c", "b", "it 's ok , no ?", "☃𝕏", "the end", "ab abc a", " x", "y z", "e\u0301"]
    out = base[:count // 3]
    while len(out) < count:
        if rng.random() < .3:
            out.append("".join(rng.choice(letters) for _ in range(rng.randint(0, 30))))
            continue
        parts = [rng.choice(tokens) if rng.random() < .4 else rng.choice(odd) if rng.random() < .5 else rng.choice(base)[:20]
                 for _ in range(rng.randint(1, 6))]
        out.append(rng.choice(["", " ", ""]).join(parts))
    return [s for s in out if s == s.encode("utf-8", "ignore").decode()]


def row(t, ids, **more):
    decoded, skip = t.decode(ids), t.decode(ids, skip_special_tokens=True)
    return {**more, "ids": ids, "decoded": decoded, **({"decoded_skip": skip} if skip != decoded or not more else {})}


def make(ctx, family):
    small = family.endswith("_small")
    vocab, count = (672, 90) if small else (1500, 800)
    folder, summary, models = fresh_dir(ctx.out / family), {}, {}
    for kind, (model, side) in files(vocab).items():
        d = folder / kind
        d.mkdir()
        if model not in models:
            models[model] = train(ctx.seed, vocab, OPTIONS[model], rules=small)
        (d / "tokenizer.model").write_bytes(models[model])
        for name, content in side.items():
            write_json(d / name, content)
        t = SlowTokenizer(d)
        rng = random.Random(f"{ctx.seed} {kind}")
        tokens = list(t.ids) + ["<sep>", "<ctl>", "<other>"]
        write_jsonl(d / "fuzz.jsonl", [row(t, t.encode(s), i=i, text=s) for i, s in enumerate(texts(rng, tokens, count, 60 if small else 400))])
        rows = []
        for _ in range(count // 2):
            kinds = [list(t.ids.values()), range(3, 259), range(vocab)]
            rows.append(row(t, [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 14))]))
        write_jsonl(d / "decode.jsonl", rows)
        summary[kind] = {"vocab_size": max(vocab, max(t.by_id, default=0) + 1), "ids_prepended_with_add_special_tokens": t.encode("", True)}
    write_json(folder / "summary.json", summary)
    if small:                                    # llava has the same model
        shutil.rmtree(folder / "bare")


def verify(folder):
    out = []
    for d in sorted(p for p in folder.iterdir() if p.is_dir()):
        t = SlowTokenizer(d)
        for name in ("fuzz", "decode"):
            rows = [json.loads(x) for x in (d / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if x]
            bad = sum(("text" in r and t.encode(r["text"]) != r["ids"]) or t.decode(r["ids"]) != r["decoded"]
                      or t.decode(r["ids"], True) != r.get("decoded_skip", r["decoded"]) for r in rows)
            out.append((f"{d.name}: {len(rows)} {name} rows", float(bad), bad == 0))
    return out
