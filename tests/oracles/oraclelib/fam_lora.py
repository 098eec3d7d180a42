"""Families lora_<model>: adapters as peft writes them, what the model computes with each, 20 steps of training and merged weights."""
import copy
import warnings

import torch
from safetensors.torch import load_file, save_file

from .common import Recorder, cases_from_reference, compare_outputs, describe, fresh_dir, generator, load_reference, read_json, write_json
from .lora_kinds import MERGED_BF16, OTHER_NAMES, TRAINED, kinds, old_name, renamed_targets, text_name
from .lora_models import MODELS, is_tied, load, write_checkpoint
from .lora_training import HYPER, train

NAME = "adapter_model.safetensors"
WHOLE = "vit.safetensors"                                 # ms-swift's file of what is trained whole beside the adapter


# --------------------------------------------------------------------------- adapters
def wrap(family, ckpt, arguments):
    """A fresh PeftModel over the start weights."""
    from peft import LoraConfig, get_peft_model
    arguments = dict(arguments)
    whole = arguments.pop("trained_whole", ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                   # of tied heads, and of biases that merging has no place for
        model = get_peft_model(load(family, ckpt), LoraConfig(task_type="CAUSAL_LM", **arguments))
    open_whole(model, whole)
    return model


def open_whole(model, prefixes):
    for name, p in model.named_parameters():
        if any(name.startswith(f"base_model.model.{m}.") for m in prefixes):
            p.requires_grad_(True)


def whole_state(model, prefixes):
    return {n: p.detach().clone() for n, p in model.named_parameters() if any(n.startswith(f"base_model.model.{m}.") for m in prefixes)}


def reload(family, ckpt, adapter, whole=(), dtype=torch.float32):
    from peft import PeftModel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(load(family, ckpt, dtype), adapter, is_trainable=True)
    if whole:
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, value in load_file(adapter / WHOLE).items():
                own[name].copy_(value)
        open_whole(model, whole)
    return model.eval()


def adapter_state(model):
    from peft import get_peft_model_state_dict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model_state_dict(model)


def trained(model):
    """{name in the adapter's file: parameter} of everything that takes gradients; what the file has not (lora_llm) by its name in memory."""
    stored = {}
    for k, v in adapter_state(model).items():
        stored.setdefault((v.data_ptr(), v.shape), k)     # of tied tensors the first; a tied pair of lora_* has transposed shapes
    return {stored.get((p.data_ptr(), p.shape), n): p for n, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def fill(model, seed, kind):
    """Values an adapter may have after training: no B of zeros, and nothing that peft copied from the base left as it was."""
    for name, p in trained(model).items():
        noise = torch.randn(p.shape, generator=generator(seed, "adapter", kind, name))
        if "lora_embedding_A" in name or ".lora_B." in name:
            p.copy_(0.1 * noise)
        elif ".lora_A." in name:
            p.copy_(noise / p[0].numel() ** 0.5)
        elif "lora_embedding_B" in name:
            p.copy_(0.5 * noise)
        elif "lora_magnitude_vector" in name:
            p.mul_(1 + 0.1 * noise)
        else:                                             # a bias, or a module that is trained whole
            p.add_(0.03 * noise)


def tidy(folder, base):
    """What differs from run to run or from place to place: the card goes, lists are sorted, the base is named by its place."""
    (folder / "README.md").unlink(missing_ok=True)
    cfg = read_json(folder / "adapter_config.json")
    cfg["base_model_name_or_path"] = base
    write_json(folder / "adapter_config.json", {k: sorted(v) if isinstance(v, list) and v and isinstance(v[0], str) else v for k, v in cfg.items()})


def save(model, folder, whole=(), base="../../checkpoint"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    tidy(folder, base)
    if whole:
        save_file(whole_state(model, whole), folder / WHOLE, metadata={"format": "pt"})


def write_renamed(family, source, target, shape):
    state = load_file(source / NAME)
    rename = {"old": old_name, "text": text_name}[shape]
    state = {rename(family, k): v for k, v in state.items()}
    target.mkdir(parents=True)
    save_file({k: v for k, v in state.items() if k}, target / NAME, metadata={"format": "pt"})
    cfg = read_json(source / "adapter_config.json")
    cfg["target_modules"] = renamed_targets(family, cfg["target_modules"], shape)
    write_json(target / "adapter_config.json", cfg)


# --------------------------------------------------------------------------- what is computed with them
def forward(model, inputs):
    model.zero_grad(set_to_none=True)
    res = model(**inputs)
    out = {"logits": res.logits.detach(), "loss": res.loss.detach()}
    takers = trained(model) if hasattr(model, "peft_config") else {}
    if takers:
        res.loss.backward()
    for name, p in takers.items():
        out[f"grad:{name}"] = (torch.zeros_like(p) if p.grad is None else p.grad).detach()
    return out


def merge(family, ckpt, adapter, whole, dtype):
    """(released tensors that differ from the base's after merging, or None where peft cannot; the merged model, or the reason)."""
    before = {family.released(k): v.clone() for k, v in load(family, ckpt, dtype).state_dict().items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = reload(family, ckpt, adapter, whole, dtype).merge_and_unload()
    except RuntimeError as e:
        return None, str(e)
    after = {family.released(k): v.detach() for k, v in model.state_dict().items()}
    return {k: v.clone().contiguous() for k, v in after.items() if k not in before or v.dtype != before[k].dtype or not torch.equal(v, before[k])}, model


def layer_count(ckpt):
    cfg = read_json(ckpt / "config.json")
    return cfg.get("text_config", cfg)["num_hidden_layers"]


def inputs_of(stored, meta):
    """(the inputs of the cases, the micro-batches of the training) of a stored reference, pictures put back."""
    cases = cases_from_reference(stored)
    for name, keys in meta.get("pixel_rows", {}).items():
        rows = [stored[f"images/{k}"] for k in keys]
        cases[name]["pixel_values"] = torch.stack(rows) if meta["pixel_join"] == "stack" else torch.cat(rows)
    return cases["batch"], [cases[n] for n in sorted(cases) if n != "batch"]


def record_inputs(rec, family, batches):
    """The first batch is the cases', the others the training's; pictures are stored once."""
    shared = []
    if family.pixels:
        rec.meta.update(pixel_rows={}, pixel_join="cat" if family.pixels == "patches" else "stack")
    for i, batch in enumerate(batches):
        name = f"{i - 1:02d}" if i else "batch"
        for k, v in batch.items():
            if k != "pixel_values":
                rec.add(f"{name}/in/{k}", v, describe(k))
                continue
            rows = v.split(batch["image_grid_thw"].prod(1).tolist()) if family.pixels == "patches" else list(v)
            for row in rows:
                key = next((j for j, s in enumerate(shared) if torch.equal(s, row)), len(shared))
                if key == len(shared):
                    shared.append(row.clone())
                    rec.add(f"images/{key}", row, "preprocessed picture")
                rec.meta["pixel_rows"].setdefault(name, []).append(key)


LOGS = {"loss": "per optimiser step: mean of its micro losses", "grad_norm_before_clip": "global L2 norm before clipping",
        "lr": "learning rate used by the step (0 in the first step)", "micro_loss": "loss of every micro-batch, in order"}


def record_outputs(rec, outputs):
    for case, outs in outputs.items():
        for k, v in outs.items():
            rec.add(f"{case}/out/{k}", v, "gradient, by the tensor's name in the adapter's file" if k.startswith("grad:") else describe(k))


def record_training(rec, model, batches, kind):
    log, rec.meta["training"][kind] = train(model, trained(model), batches, kind)
    for k, v in log.items():
        rec.add(f"train_{kind}/out/{k}", torch.tensor(v, dtype=torch.float64).float(), LOGS[k])


def make(ctx, name):
    family = MODELS[name.split("_", 1)[1]]()
    folder = fresh_dir(ctx.out / name)
    ckpt = folder / "checkpoint"
    write_checkpoint(ctx, family, ckpt)
    rec = Recorder(name, ctx.seed)
    batches = family.batches(ckpt, folder, ctx.seed, 1 + HYPER["steps"] * HYPER["accumulation"])
    record_inputs(rec, family, batches)
    table = kinds(family, layer_count(ckpt), is_tied(ckpt))
    meta = rec.meta
    meta.update(hyper=copy.deepcopy(HYPER), adapters={}, training={}, not_merged={}, merged_apart={})
    outputs = {"base": forward(load(family, ckpt), batches[0])}
    for kind, arguments in table.items():
        adapter, whole = folder / "adapters" / kind, arguments.get("trained_whole", ())
        model = wrap(family, ckpt, arguments)
        fill(model, ctx.seed, kind)
        save(model, adapter, whole)
        again = trained(reload(family, ckpt, adapter, whole))
        if any(not torch.equal(p, again[n]) for n, p in trained(model).items()):
            raise RuntimeError(f"{kind} reads back as another adapter")
        meta["adapters"][kind] = {"adapter": f"adapters/{kind}", "inputs": "batch", **({"trained_whole": list(whole)} if whole else {})}
        outputs[kind] = forward(reload(family, ckpt, adapter, whole), batches[0])
        if family.tower and kind in OTHER_NAMES:
            for shape in ("old", "text"):
                write_renamed(family, adapter, folder / f"adapters_{shape}" / kind, shape)
        for part, dtype in (("merged", torch.float32), ("merged_bf16", torch.bfloat16)):
            if dtype == torch.float32 or kind in MERGED_BF16:
                changed, merged = merge(family, ckpt, adapter, whole, dtype)
                (folder / part).mkdir(exist_ok=True)
                if changed is None:
                    meta["not_merged"][kind] = merged
                    continue
                save_file(changed, folder / part / f"{kind}.safetensors", metadata={"format": "pt"})
                if dtype == torch.float32:                # with a tied head peft's merged model is another than the adapter's
                    with torch.no_grad():
                        meta["merged_apart"][kind] = (merged(**batches[0]).logits - outputs[kind]["logits"]).abs().max().item()
        if kind in TRAINED:
            model = reload(family, ckpt, adapter, whole).train()
            record_training(rec, model, batches[1:], kind)
            save(model, folder / "final" / kind, whole)
    record_outputs(rec, outputs)
    rec.save(folder)


# --------------------------------------------------------------------------- verify
def is_key_bias(name):
    """Whose gradient is hardly more than rounding (fam_training.py says why), so that two right programs end in others."""
    return name.endswith("bias") and ("k_proj" in name or "qkv" in name)


def compare_files(name, file, state, atol):
    stored = load_file(file)
    if set(stored) != set(state):
        return [(f"{name}: names", float("inf"), False)]
    worst = max((((stored[k].float() - v.float()).abs().max().item(), k) for k, v in state.items() if not is_key_bias(k)), default=(0.0, ""))
    return [(f"{name}: {worst[1]}", worst[0], worst[0] <= atol)]


def verify(folder):
    family = MODELS[folder.name.split("_", 1)[1]]()
    stored, meta = load_reference(folder)
    ckpt = folder / "checkpoint"
    batch, micro = inputs_of(stored, meta)
    outputs, rows = {"base": forward(load(family, ckpt), batch)}, []
    for kind, entry in meta["adapters"].items():
        adapter, whole = folder / entry["adapter"], entry.get("trained_whole", ())
        outputs[kind] = forward(reload(family, ckpt, adapter, whole), batch)
        for part, dtype, atol in (("merged", torch.float32, 1e-6), ("merged_bf16", torch.bfloat16, 0.0)):
            file = folder / part / f"{kind}.safetensors"
            if file.exists():
                rows += compare_files(f"{part}/{kind}", file, merge(family, ckpt, adapter, whole, dtype)[0], atol)
        if kind in meta["training"]:
            model = reload(family, ckpt, adapter, whole).train()
            log, rules = train(model, trained(model), micro, kind)
            rows.append((f"train_{kind}: rules", 0.0, rules == meta["training"][kind]))
            for k, v in log.items():
                d = (stored[f"train_{kind}/out/{k}"] - torch.tensor(v, dtype=torch.float64).float()).abs().max().item()
                rows.append((f"train_{kind}/{k}", d, d < 1e-4))
            final = folder / "final" / kind
            rows += compare_files(f"final/{kind}", final / NAME, adapter_state(model), 1e-4)
            if whole:
                rows += compare_files(f"final/{kind}/{WHOLE}", final / WHOLE, whole_state(model, whole), 1e-4)
    wanted = {k: v for k, v in stored.items() if "/out/" in k and not k.startswith("train_")}
    return rows + compare_outputs(wanted, outputs, dropped=meta.get("dropped", ()))
