"""What transformers' Python tokenizers of version 4 (LlamaTokenizer, InternLM2Tokenizer) make of a folder with a tokenizer.model,
over the sentencepiece library. transformers 5 has no such classes any more; the README says what this was compared with."""
import json
import re
from pathlib import Path

import sentencepiece as spm

SPACE = "▁"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
CLEAN = [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"),
         (" 're", "'re")]
NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"     # behind a serialised model: normalizer_spec { add_dummy_prefix: false }


def read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def content_of(token):
    return token if isinstance(token, str) else token["content"]


def clean_up(text):
    for old, new in CLEAN:
        text = text.replace(old, new)
    return text


class SlowTokenizer:
    def __init__(self, folder):
        folder = Path(folder)
        self.config = read(folder / "tokenizer_config.json")
        self.intern = self.config.get("tokenizer_class", "").startswith("InternLM2")
        self.legacy = self.intern or self.config.get("legacy") in (None, True)
        self.add_prefix_space = bool(self.config.get("add_prefix_space", True))
        model = (folder / "tokenizer.model").read_bytes()
        self.sp = spm.SentencePieceProcessor(model_proto=model if self.legacy else model + NO_DUMMY_PREFIX)
        self.by_id = {}
        if "added_tokens_decoder" in self.config:
            self.by_id = {int(i): dict(t) for i, t in self.config["added_tokens_decoder"].items()}
        else:
            for name, token in read(folder / "special_tokens_map.json").items():
                if name == "additional_special_tokens":
                    token = (self.config.get(name) or []) + token
                self.config[name] = token
            self.by_id = {i: {"content": c} for c, i in read(folder / "added_tokens.json").items()}
        self.ids = {t["content"]: i for i, t in self.by_id.items()}
        self.name_tokens()
        self.pattern = re.compile("|".join(re.escape(c) for c in sorted(self.ids, key=len, reverse=True)))
        extra = {content_of(t) for t in self.config.get("additional_special_tokens") or []}
        self.apart = (set(self.ids) - set(self.special)) | {c for c in extra if self.id_of(c) >= self.sp.get_piece_size()}

    def name_tokens(self):
        """Special tokens get an id, in this order, where they have none."""
        usual = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>" if self.intern else None}
        self.named = {n: content_of(t) for n in NAMES if (t := self.config.get(n, usual.get(n)))}
        tokens = [self.config.get(n, usual.get(n)) for n in self.named] + (self.config.get("additional_special_tokens") or [])
        vocabulary = {self.token_of(i): i for i in range(self.sp.get_piece_size())} | self.ids
        count = len(vocabulary)
        self.special = {content_of(t): None for t in tokens}
        for token in tokens:
            content = content_of(token)
            if content not in vocabulary:
                vocabulary[content], count = count, count + 1
            if content not in self.ids:
                self.by_id[vocabulary[content]] = {"content": content, **(token if isinstance(token, dict) else {})}
                self.ids[content] = vocabulary[content]

    def token_of(self, i):
        return self.by_id[i]["content"] if i in self.by_id else self.sp.id_to_piece(i)

    def id_of(self, token):
        return self.ids.get(token, self.sp.piece_to_id(token))

    def split(self, text):
        parts, done = [], 0
        for match in self.pattern.finditer(text):
            parts += [text[done:match.start()], match[0]]
            done = match.end()
        parts = [p for p in parts + [text[done:]] if p]
        for i, part in enumerate(parts):
            if part not in self.ids:
                continue
            token, left, right = self.by_id[self.ids[part]], parts[i - 1] if i else "", parts[i + 1] if i + 1 < len(parts) else ""
            if token.get("rstrip") and right:
                parts[i + 1] = right.lstrip()
            if token.get("lstrip") and left:
                parts[i - 1] = left.rstrip()
            if token.get("single_word") and left and left[-1] != " ":
                parts[i - 1], parts[i] = parts[i - 1] + part, ""
            elif token.get("single_word") and right and right[0] != " ":
                parts[i + 1], parts[i] = part + parts[i + 1], ""
        return [p for p in parts if p]

    def pieces(self, text):
        if self.legacy or not text.startswith((SPACE, " ")):
            return self.sp.encode(text, out_type=str)
        unknown = self.named["unk_token"]
        pieces, taken = self.sp.encode(unknown + text, out_type=str), len(self.sp.encode(unknown))
        return pieces[taken:] if len(pieces) >= taken else pieces

    def encode(self, text, add_special_tokens=False):
        if not self.legacy and text:
            text = (SPACE if self.add_prefix_space else "") + text.replace(SPACE, " ")
        tokens = [t for part in self.split(text) for t in ([part] if part in self.ids else self.pieces(part))]
        if not self.legacy and len(tokens) > 1 and tokens[0] == SPACE and tokens[1] in self.special:
            tokens = tokens[1:]
        ids = [self.id_of(t) for t in tokens]
        if not add_special_tokens:
            return ids
        bos = [self.id_of(self.named["bos_token"])] if self.config.get("add_bos_token", True) else []
        return bos + ids + ([self.id_of(self.named["eos_token"])] if self.config.get("add_eos_token") else [])

    def spell(self, tokens):
        """The text of tokens of which none stands apart."""
        if not self.intern and tokens[0].startswith(SPACE) and self.add_prefix_space:
            tokens = [tokens[0][1:]] + tokens[1:]
        out, run, after_special = "", [], False
        for i, token in enumerate(tokens):
            if token in self.special:
                if not after_special and self.legacy and (i or self.intern):
                    out += " "
                out, run, after_special = out + self.sp.decode(run) + token, [], True
                continue
            if not self.intern and after_special and i == 1 and self.add_prefix_space and not token.startswith(SPACE):
                out += " "
            run, after_special = run + [token], False
        out += self.sp.decode(run)
        return clean_up(out) if self.intern else out

    def decode(self, ids, skip_special_tokens=False):
        parts, run = [], []
        for i in ids:
            token = self.token_of(i)
            if skip_special_tokens and (token in self.special or i in {self.id_of(s) for s in self.special}):
                continue
            if token not in self.apart:
                run.append(token)
                continue
            parts += [t for t in ([self.spell(run)] if run else []) if t] + [token]
            run = []
        text = " ".join(parts + ([self.spell(run)] if run else []))
        return clean_up(text) if self.config.get("clean_up_tokenization_spaces") else text
