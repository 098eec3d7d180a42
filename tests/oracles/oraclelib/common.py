"""Shared helpers: seeding, weight initialisation, recording, checkpoint writing; running.py runs the models.

Vocabulary used by every family module
  case      one named set of inputs with its outputs; tensors are stored as "<case>/in/<name>" and
            "<case>/out/<name>" in reference.safetensors.
  compute   function(ckpt_dir, cases) -> outputs.  It is used when writing AND when verifying, always on a
            model re-loaded from the files on disk, so a stored reference is by construction reproducible
            from the checkpoint.
"""
import hashlib
import json
import math
import shutil
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file


# --------------------------------------------------------------------------- seeding
def generator(seed, *names):
    """A torch generator whose stream depends on the seed and on the given names only."""
    key = "/".join(str(n) for n in names)
    return torch.Generator().manual_seed((int(seed) * 1_000_003 + zlib.crc32(key.encode())) % (2**63))


def np_rng(seed, *names):
    return np.random.default_rng([int(seed), zlib.crc32("/".join(map(str, names)).encode())])


# --------------------------------------------------------------------------- weights
NORM_WORDS = ("norm", "ln_", "layrnorm", "ln.", ".ln")
EMBED_WORDS = ("embed_tokens", "position_embedding", "class_embedding", "embeddings.cls_token", "pos_embed",
               "token_embedding", "embed_positions", "emb_text", "emb_code")


def init_value(name, shape, seed):
    """Deterministic value of one parameter; depends on (seed, name, shape) only, not on module order.

    The scales keep activations O(1) so that errors show up: matrices 1/sqrt(fan_in), norms around 1 (not exactly
    1), non-zero biases, layer scales around 0.5.
    """
    noise = torch.randn(shape, generator=generator(seed, name), dtype=torch.float32)
    low = name.lower()
    leaf = low.rsplit(".", 1)[-1]
    if "lambda_" in leaf or leaf in ("ls1", "ls2", "gamma", "alpha", "beta"):
        return 0.5 + 0.1 * noise
    if leaf == "bias" or leaf.endswith("_bias"):
        return 0.05 * noise
    if len(shape) <= 1 and any(w in low for w in NORM_WORDS):
        return 1.0 + 0.1 * noise
    if any(w in low for w in EMBED_WORDS):
        return 0.5 * noise
    if len(shape) <= 1:
        return 0.5 * noise
    fan_in = math.prod(shape[1:])
    gain = 2.0 if "lm_head" in low else 0.02 if "conv_post" in low else 1.0      # 0.02: keep the vocoder below its clamp
    return gain * noise / math.sqrt(fan_in)


@torch.no_grad()
def init_model(model, seed, dtype=torch.float32):
    """Overwrite every parameter by init_value, rounded through `dtype` (the on-disk type)."""
    for name, param in model.named_parameters():
        param.copy_(init_value(name, tuple(param.shape), seed).to(dtype).to(param.dtype))
    if hasattr(model, "tie_weights"):
        model.tie_weights()


# --------------------------------------------------------------------------- files
def write_json(path, obj, indent=2):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(obj, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_jsonl(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def fresh_dir(path):
    path = Path(path)
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def write_weights(ckpt, tensors, dtype=torch.float32, shards=1):
    """Write model.safetensors, or model-0000i-of-0000n.safetensors with model.safetensors.index.json."""
    ckpt = Path(ckpt)
    tensors = {k: (v.detach().to(dtype) if v.is_floating_point() else v.detach()).clone().contiguous()
               for k, v in tensors.items()}
    if shards == 1:
        save_file(tensors, ckpt / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    groups, size, limit = [[]], 0, total / shards
    for n in names:
        nbytes = tensors[n].numel() * tensors[n].element_size()
        if size + nbytes > limit * len(groups) and groups[-1] and len(groups) < shards:
            groups.append([])
        groups[-1].append(n)
        size += nbytes
    weight_map = {}
    for i, group in enumerate(groups):
        fname = f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors"
        save_file({n: tensors[n] for n in group}, ckpt / fname, metadata={"format": "pt"})
        weight_map.update({n: fname for n in group})
    write_json(ckpt / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def read_weights(ckpt):
    ckpt = Path(ckpt)
    if (ckpt / "model.safetensors").exists():
        return load_file(ckpt / "model.safetensors")
    out = {}
    for fname in sorted(set(read_json(ckpt / "model.safetensors.index.json")["weight_map"].values())):
        out.update(load_file(ckpt / fname))
    return out


def write_bins(ckpt, state, shards=2):
    """As transformers 4 saves: torch.save of a dictionary a shard, and an index."""
    names, files = list(state), [f"pytorch_model-{i + 1:05d}-of-{shards:05d}.bin" for i in range(shards)]
    file_of = {n: files[i * shards // len(names)] for i, n in enumerate(names)}
    for f in files:
        torch.save({n: state[n] for n in names if file_of[n] == f}, ckpt / f)
    total = sum(t.numel() * t.element_size() for t in state.values())
    write_json(ckpt / "pytorch_model.bin.index.json", {"metadata": {"total_size": total}, "weight_map": file_of})


def read_bins(ckpt):
    """The tensors of pytorch_model.bin, or of the shards of its index."""
    index = Path(ckpt) / "pytorch_model.bin.index.json"
    files = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else ["pytorch_model.bin"]
    return {n: t for f in files for n, t in torch.load(Path(ckpt) / f, weights_only=True).items()}


# --------------------------------------------------------------------------- recording
class Recorder:
    """Collects tensors with a one-line meaning, and JSON metadata; writes reference.safetensors/.json."""

    def __init__(self, family, seed):
        self.tensors, self.meaning = {}, {}
        self.meta = {"family": family, "seed": seed}

    def add(self, name, tensor, meaning=""):
        if not torch.is_tensor(tensor):
            tensor = torch.as_tensor(np.asarray(tensor))
        tensor = tensor.detach().cpu()
        if tensor.dtype in (torch.float64, torch.bfloat16, torch.float16):
            tensor = tensor.float()
        self.tensors[name] = tensor.clone().contiguous()
        self.meaning[name] = meaning or self.meaning.get(name, "")

    def save(self, folder, stem="reference"):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, folder / f"{stem}.safetensors", metadata={"format": "pt"})
        self.meta["tensors"] = {
            n: {"shape": list(t.shape), "dtype": str(t.dtype).replace("torch.", ""), "meaning": self.meaning[n]}
            for n, t in self.tensors.items()}
        write_json(folder / f"{stem}.json", self.meta, indent=1)


def load_reference(folder, stem="reference"):
    return load_file(Path(folder) / f"{stem}.safetensors"), read_json(Path(folder) / f"{stem}.json")


def cases_from_reference(tensors):
    """{"<case>": {"<input>": tensor}} from the "<case>/in/<input>" entries."""
    cases = {}
    for name, t in tensors.items():
        case, kind, leaf = (name.split("/", 2) + ["", ""])[:3]
        if kind == "in":
            cases.setdefault(case, {})[leaf] = t
    return cases


# --------------------------------------------------------------------------- running a model
MEANING = {
    "input_ids": "token ids fed to the model",
    "attention_mask": "1 = real token, 0 = padding",
    "labels": "targets before the shift by one; -100 = ignored",
    "pixel_values": "image tensor produced by the image processor",
    "pixel_values_videos": "video tensor produced by the video processor",
    "image_grid_thw": "per image: temporal, vertical, horizontal patch counts (before merging)",
    "video_grid_thw": "per video: temporal, vertical, horizontal patch counts (before merging)",
    "second_per_grid_ts": "per video: seconds covered by one temporal grid step",
    "video_second_per_grid": "per video: seconds covered by one temporal grid step",
    "input_features": "log-mel audio features",
    "feature_attention_mask": "1 = real mel frame",
    "mm_token_type_ids": "0 text, 1 image, 2 video (transformers 5 processor output)",
    "logits": "language-model logits, fp32",
    "loss": "mean cross entropy over labels != -100 after the shift",
    "inputs_embeds": "embeddings entering decoder layer 0, after multimodal merging",
    "last_hidden_state": "hidden states after the final norm",
    "pooled": "mean of last_hidden_state over attention_mask==1 positions",
    "generated": "16 greedy token ids (no stopping at EOS), new tokens only",
    "generated_margin": "per step: top-1 minus top-2 logit; a step with a tiny margin may flip",
    "position_ids": "position ids used by the decoder (3 rows = t,h,w for mRoPE)",
    "rope_deltas": "mRoPE offset per row used in decoding",
}


def describe(name):
    leaf = name.split("/")[-1]
    if leaf in MEANING:
        return MEANING[leaf]
    if leaf.startswith("grad:"):
        return "gradient of the loss with respect to this parameter (name as in the checkpoint)"
    if leaf.startswith("layer_"):
        return "output of this decoder layer"
    return ""


def record_cases(rec, cases, outputs, extra_meaning=None):
    extra = extra_meaning or {}
    for case, ins in cases.items():
        for k, v in ins.items():
            rec.add(f"{case}/in/{k}", v, extra.get(k) or describe(k))
    for case, outs in outputs.items():
        for k, v in outs.items():
            rec.add(f"{case}/out/{k}", v, extra.get(k) or extra.get(k.split("#")[0]) or describe(k))


def compare_outputs(stored, outputs, atol=2e-5, dropped=()):
    """Rows (name, max abs diff, ok) of recomputed outputs against the stored reference; `dropped` was left out on purpose."""
    rows = []
    for case, outs in outputs.items():
        for k, v in outs.items():
            name = f"{case}/out/{k}"
            if name in dropped:
                continue
            if name not in stored:
                rows.append((name, float("inf"), False))
                continue
            ref = stored[name]
            v = v.detach().cpu()
            if ref.shape != v.shape:
                rows.append((name, float("inf"), False))
            elif ref.is_floating_point():
                d = (ref.double() - v.double()).abs().max().item() if ref.numel() else 0.0
                scale = max(1.0, ref.abs().max().item() if ref.numel() else 1.0)
                rows.append((name, d, d <= atol * scale))
            else:
                same = bool((ref == v).all())
                rows.append((name, 0.0 if same else float("inf"), same))
    missing = [n for n in stored if "/out/" in n and
               n.split("/", 2)[2] not in outputs.get(n.split("/")[0], {})]
    rows += [(n + " (not recomputed)", float("inf"), False) for n in missing]
    return rows


def dtype_spread(load, cases, names=("logits",)):
    """How far HF itself moves between implementations: {case: {"sdpa_vs_eager": d, "bf16_vs_fp32": d, ...}}.

    load(dtype, attn) -> model.  Used to ground the tolerances in the README.
    """
    spread = {}
    base = load(torch.float32, "eager")
    variants = {"sdpa_fp32": load(torch.float32, "sdpa"), "eager_bf16": load(torch.bfloat16, "eager")}
    for case, ins in cases.items():
        ins = {k: v for k, v in ins.items() if k != "labels"}
        with torch.no_grad():
            ref = base(**ins).logits.float()
            row = {"logits_abs_max": ref.abs().max().item()}
            mask = ins.get("attention_mask", torch.ones_like(ins["input_ids"])).bool()
            for vname, m in variants.items():
                dt = next(m.parameters()).dtype
                cast = {k: (v.to(dt) if v.is_floating_point() and not k.startswith(("second", "video_second")) else v)
                        for k, v in ins.items()}
                diff = (m(**cast).logits.float() - ref).abs()[mask]
                row[vname + "_max_abs_diff"] = diff.max().item()
                row[vname + "_mean_abs_diff"] = diff.mean().item()
        spread[case] = row
    return spread


def tensor_names(ckpt):
    ckpt = Path(ckpt)
    names = {}
    for f in sorted(ckpt.glob("*.safetensors")):
        with safe_open(f, "pt") as s:
            for k in s.keys():
                sl = s.get_slice(k)
                names[k] = {"shape": list(sl.get_shape()), "dtype": sl.get_dtype()}
    return names


def checked_load(cls, ckpt, dtype=torch.float32, attn="eager", **kw):
    """from_pretrained that refuses missing, unexpected or mismatched keys."""
    model, info = cls.from_pretrained(ckpt, dtype=dtype, attn_implementation=attn, output_loading_info=True, **kw)
    problems = {k: sorted(v) for k, v in info.items()
                if v and ("missing" in k or "unexpected" in k or "mismatch" in k or "error" in k)}
    if problems:
        raise RuntimeError(f"loading {cls.__name__}: {problems}")
    return model.eval()


def assert_same_weights(a, b):
    """Two models of the same class hold identical parameters."""
    sb = dict(b.named_parameters())
    for n, p in a.named_parameters():
        if not torch.equal(p.float(), sb[n].float()):
            raise RuntimeError(f"weights differ after reload: {n}")


def pick(model, mapping):
    """{released name: parameter} from {released name: in-memory name}."""
    params = dict(model.named_parameters())
    return {rel: params[mem] for rel, mem in mapping.items()}


def tail_labels(input_ids, attention_mask, ignore_ids, prompt_len=3):
    """Labels = ids, with padding, placeholder ids and the first prompt_len real tokens set to -100."""
    labels = input_ids.clone().masked_fill(attention_mask == 0, -100)
    for i in ignore_ids:
        labels[input_ids == i] = -100
    for row, mask in zip(labels, attention_mask):
        start = int(mask.argmax())
        row[start:start + prompt_len] = -100
    return labels


def safe_inputs(batch, drop=()):
    """BatchFeature -> plain dict of tensors."""
    out = {}
    for k, v in batch.items():
        if k in drop or v is None:
            continue
        out[k] = v if torch.is_tensor(v) else torch.as_tensor(np.asarray(v))
    return out


def write_v5_view(model, folder):
    """What transformers 5's own save_pretrained writes for this model: config_transformers5.json and the tensor names.

    A loader should accept this config style and these names as well as the released ones in checkpoint/.
    """
    import tempfile
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(tmp)
        shutil.copy(Path(tmp) / "config.json", Path(folder) / "config_transformers5.json")
        write_json(Path(folder) / "names_transformers5.json", sorted(tensor_names(tmp)))
