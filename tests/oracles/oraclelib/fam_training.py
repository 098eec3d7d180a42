"""Training oracles: 20 optimiser steps in fp32 for tiny qwen2 (full fine-tuning, two loss normalisations, LoRA) and
tiny llava (frozen vision tower, LoRA on the language model)."""
import copy

import torch

from . import fam_llava, fam_text, media, tok
from .sizes import sizes
from .common import (Recorder, checked_load, cases_from_reference, fresh_dir, generator, init_model, load_reference, read_json,
                     write_json, write_weights)

HYPER = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "warmup_steps": 4, "steps": 20, "accumulation": 2,
         "clip": 1.0, "micro_batch": 2, "schedule": "linear warm-up from 0, then cosine to 0 (HF get_cosine_schedule_with_warmup)",
         "weight_decay_on": "parameters with ndim >= 2 only; 1-D parameters (norms, biases) use 0",
         "lora": {"r": 4, "alpha": 8, "dropout": 0.0, "bias": "none", "lr": 1e-2, "weight_decay": 0.0}}


def released(family, name):
    return fam_llava.released_name(name) if family == "llava" else name


def load(ckpt, family):
    import transformers as tf
    cls = tf.LlavaForConditionalGeneration if family == "llava" else tf.Qwen2ForCausalLM
    return checked_load(cls, ckpt).train()


def lora_model(model, family, seed):
    from peft import LoraConfig, get_peft_model
    h = HYPER["lora"]
    target = r".*language_model.*\.(q_proj|v_proj)" if family == "llava" else ["q_proj", "k_proj", "v_proj", "o_proj"]
    cfg = LoraConfig(r=h["r"], lora_alpha=h["alpha"], lora_dropout=h["dropout"], bias=h["bias"], task_type="CAUSAL_LM", target_modules=target)
    m = get_peft_model(model, cfg)
    with torch.no_grad():
        for n, p in m.named_parameters():
            if "lora_" in n:                              # non-zero B as well, so that A receives a gradient at once
                p.copy_(0.05 * torch.randn(p.shape, generator=generator(seed, n)))
    return m


def train(model, batches, lr, wd, normalise):
    """Returns per-step records.  normalise: 'micro_mean' (mean of micro-batch means) or 'token_mean' (sum / all tokens)."""
    from transformers import get_cosine_schedule_with_warmup
    params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [{"params": [p for _, p in params if p.ndim >= 2], "weight_decay": wd},
              {"params": [p for _, p in params if p.ndim < 2], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=lr, betas=tuple(HYPER["betas"]), eps=HYPER["eps"], foreach=False, fused=False)
    sched = get_cosine_schedule_with_warmup(opt, HYPER["warmup_steps"], HYPER["steps"])
    losses, norms, lrs, micro = [], [], [], []
    k = HYPER["accumulation"]
    for step in range(HYPER["steps"]):
        group = batches[step * k:(step + 1) * k]
        counts = [int((b["labels"][:, 1:] != -100).sum()) for b in group]
        total = 0.0
        for b, n in zip(group, counts):
            loss = model(**b).loss                        # mean over the micro-batch's own tokens
            weight = 1 / k if normalise == "micro_mean" else n / sum(counts)
            (loss * weight).backward()
            micro.append(loss.item())
            total += loss.item() * weight
        norms.append(float(torch.nn.utils.clip_grad_norm_([p for _, p in params], HYPER["clip"])))
        lrs.append(opt.param_groups[0]["lr"])
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        losses.append(total)
    return {"loss": losses, "grad_norm_before_clip": norms, "lr": lrs, "micro_loss": micro}


def runs(family):
    out = {"full_micro_mean": (False, "micro_mean"), "full_token_mean": (False, "token_mean"), "lora": (True, "micro_mean")}
    if family == "llava":
        out.pop("full_token_mean")
    return out


def execute(ckpt, family, batches, seed, name):
    lora, normalise = runs(family)[name]
    model = load(ckpt, family)
    if lora:
        model = lora_model(model, family, seed)
        lr, wd = HYPER["lora"]["lr"], HYPER["lora"]["weight_decay"]
    else:
        if family == "llava":
            model.model.vision_tower.requires_grad_(False)
        lr, wd = HYPER["lr"], HYPER["weight_decay"]
    start = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad} if lora else None
    return model, start, train(model, batches, lr, wd, normalise)


def make_batches(family, ckpt, folder, seed):
    """40 micro-batches of 2 rows, right padded, labels with -100."""
    n = HYPER["steps"] * HYPER["accumulation"]
    if family == "qwen2":
        from tokenizers import Tokenizer

        from . import corpus
        t = Tokenizer.from_file(str(ckpt / "tokenizer.json"))
        lines = [x for x in corpus.training_text(seed) if 30 < len(x) < 120]
        g = generator(seed, "train")
        pick = torch.randint(len(lines), (n * 2,), generator=g).tolist()
        out = []
        for i in range(n):
            rows = [t.encode(lines[j]).ids[:32] for j in pick[2 * i:2 * i + 2]]
            ids, mask = fam_text.pad_batch(rows, t.token_to_id("<|endoftext|>"), "right")
            labels = ids.masked_fill(mask == 0, -100)
            labels[0, :4] = -100
            out.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
        return out
    from transformers import AutoProcessor
    proc = AutoProcessor.from_pretrained(ckpt)
    image_id = read_json(ckpt / "config.json")["image_token_index"]
    pics = [media.model_image(seed, folder / "media", f"train_{i}.png", 60 + 7 * i, 64) for i in range(4)]
    answers = ["a red shape.", "two circles and a line.", "没有。", "noise"]
    out = []
    for i in range(n):
        a, b = i % 4, (i // 2 + 1) % 4
        text = [f"USER: <image>\nDescribe {i % 5}. ASSISTANT: {answers[a]}</s>", f"USER: <image>\nWhat? ASSISTANT: {answers[b]}</s>"]
        x = proc(images=[pics[a], pics[b]], text=text, return_tensors="pt", padding=True, padding_side="right")
        from .common import tail_labels
        out.append({"input_ids": x["input_ids"], "attention_mask": x["attention_mask"], "pixel_values": x["pixel_values"],
                    "labels": tail_labels(x["input_ids"], x["attention_mask"], [image_id], 8)})
    return out


def make(ctx, name):
    from transformers import AutoConfig, LlavaForConditionalGeneration, Qwen2ForCausalLM
    family = name.split("_", 1)[1]
    folder = fresh_dir(ctx.out / name)
    ckpt = folder / "checkpoint"
    ckpt.mkdir()
    if family == "qwen2":
        t = fam_text.write_family_tokenizer(ctx, "qwen2", ckpt)
        cfg = {**fam_text.config_for("qwen2", tok.padded_vocab(t), t.get_vocab(True)), **sizes(ctx.sizes, ctx.seed, "qwen2")}
        write_json(ckpt / "config.json", cfg)
        model = Qwen2ForCausalLM(AutoConfig.from_pretrained(ckpt))
        skip = {"lm_head.weight"} if cfg["tie_word_embeddings"] else set()
    else:
        fam_llava.write_config(ctx, ckpt)
        model = LlavaForConditionalGeneration(AutoConfig.from_pretrained(ckpt))
        skip = set()
    disk = torch.float32 if family == "qwen2" else torch.float16
    init_model(model, ctx.seed + 1000, disk)
    write_weights(ckpt, {released(family, k): v for k, v in model.state_dict().items() if k not in skip}, disk)
    batches = make_batches(family, ckpt, folder, ctx.seed)
    rec = Recorder(name, ctx.seed)
    shared = {}
    for i, b in enumerate(batches):
        for k, v in b.items():
            if k == "pixel_values":                        # 4 distinct images: stored once
                for row, img in enumerate(v):
                    key = next((j for j, s in shared.items() if torch.equal(s, img)), None)
                    if key is None:
                        key = len(shared)
                        shared[key] = img.clone()
                        rec.add(f"images/{key}", img, "preprocessed image")
                    rec.meta.setdefault("pixel_rows", {}).setdefault(f"{i:02d}", []).append(key)
            else:
                rec.add(f"{i:02d}/in/{k}", v, {"input_ids": "micro-batch token ids", "attention_mask": "1 = real",
                                               "labels": "-100 = ignored"}[k])
    for run in runs(family):
        model, start, log = execute(ckpt, family, batches, ctx.seed, run)
        for k, v in log.items():
            rec.add(f"{run}/out/{k}", torch.tensor(v, dtype=torch.float64).float(),
                    {"loss": "per optimiser step: weighted sum of micro losses", "grad_norm_before_clip": "global L2 norm before clipping",
                     "lr": "learning rate used by the step (0 in the first step)", "micro_loss": "loss of every micro-batch, in order"}[k])
        if run == "lora":
            final = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
            model.save_pretrained(folder / "lora_final", safe_serialization=True)
            with torch.no_grad():
                for n, p in model.named_parameters():
                    if n in start:
                        p.copy_(start[n])
            model.save_pretrained(folder / "lora_init", safe_serialization=True)
            for d in ("lora_final", "lora_init"):
                (folder / d / "README.md").unlink(missing_ok=True)
                cfg = read_json(folder / d / "adapter_config.json")
                cfg["base_model_name_or_path"] = "../checkpoint"
                if isinstance(cfg["target_modules"], list):
                    cfg["target_modules"].sort()           # PEFT keeps a set: fix the order
                write_json(folder / d / "adapter_config.json", cfg)
            sums = final
        else:
            final = {released(family, k): v.detach() for k, v in model.state_dict().items() if k not in skip}
            if run == "full_micro_mean":                   # values of a part of the model; checksums of everything
                write_weights(folder, {k: v for k, v in final.items() if k.startswith("multi_modal_projector") or k.endswith("model.norm.weight")
                                       or ".layers.1." in k and "vision_tower" not in k})
                (folder / "model.safetensors").rename(folder / "final_full_micro_mean.safetensors")
            sums = final
        rec.meta.setdefault("final_checksums", {})[run] = {
            k: {"sum": v.double().sum().item(), "abs_sum": v.double().abs().sum().item(), "first8": v.flatten()[:8].tolist()}
            for k, v in sums.items()}
    rec.meta["hyper"] = copy.deepcopy(HYPER)
    rec.save(folder)


def is_key_bias(key):
    return key.endswith("k_proj.bias")


def apart_by_key_biases(model, family, sums, file, batch):
    """How far logits move when the key biases are the recorded ones: whole where they are on file, else their first eight.

    Softmax does not see what all keys share, so of a key bias's gradient only what the turning of positions leaves is more than
    rounding, and AdamW scales it up to whole steps: two right programs end in other biases. What these do to the model is held
    to the bar of all logits instead (src/lockstep/verify/training.cpp does the same).
    """
    from safetensors.torch import load_file
    stored = load_file(file) if file else {}
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    with torch.no_grad():
        ours = model(**inputs).logits
        for name, bias in model.named_parameters():
            key = released(family, name)
            if not is_key_bias(key) or key not in sums:
                continue
            if key in stored:
                bias.copy_(stored[key])
            else:
                first = torch.tensor(sums[key]["first8"])
                bias[:len(first)] = first
        theirs = model(**inputs).logits
    return ((ours - theirs).abs() * batch["attention_mask"].unsqueeze(-1)).max().item()


def verify(folder):
    stored, meta = load_reference(folder)
    family = folder.name.split("_", 1)[1]
    cases = cases_from_reference(stored)
    batches = []
    for i in range(HYPER["steps"] * HYPER["accumulation"]):
        b = dict(cases[f"{i:02d}"])
        if "pixel_rows" in meta:
            b["pixel_values"] = torch.stack([stored[f"images/{j}"] for j in meta["pixel_rows"][f"{i:02d}"]])
        batches.append(b)
    rows = []
    for run in runs(family):
        model, _, log = execute(folder / "checkpoint", family, batches, meta["seed"], run)
        for k, v in log.items():
            d = (stored[f"{run}/out/{k}"] - torch.tensor(v, dtype=torch.float64).float()).abs().max().item()
            rows.append((f"{run}/{k}", d, d < 1e-4))
        now = dict(model.named_parameters())
        sums = meta["final_checksums"][run]
        for n, p in now.items():
            key = n if run == "lora" else released(family, n)
            if key in sums:
                d = abs(p.detach().double().abs().sum().item() - sums[key]["abs_sum"]) / max(1.0, sums[key]["abs_sum"])
                if not is_key_bias(key):
                    rows.append((f"{run} final {key} (relative abs-sum)", d, d < 1e-5))
        if run != "lora":
            d = apart_by_key_biases(model, family, sums, folder / "final_full_micro_mean.safetensors" if run == "full_micro_mean" else None, batches[-1])
            rows.append((f"{run} logits with the recorded key biases in place of these", d, d < 1e-4))
    from peft import PeftModel
    base = load(folder / "checkpoint", family)
    tuned = PeftModel.from_pretrained(base, folder / "lora_final").train()
    again = {n: p for n, p in tuned.named_parameters() if "lora_" in n}
    bad = [n for n, p in again.items() if abs(p.double().abs().sum().item() - meta["final_checksums"]["lora"][n]["abs_sum"]) > 1e-6]
    rows.append(("PEFT adapter reloads", float(len(bad)), not bad and len(again) > 0))
    return rows
