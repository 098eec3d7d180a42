"""Families qlora_<model>: folders that transformers quantises with bitsandbytes, what they compute, and adapters over them with their training."""
import copy
import logging
import shutil

import torch
from safetensors.torch import load_file, save_file

from .common import Recorder, compare_outputs, fresh_dir, load_reference, read_weights
from .fam_lora import (NAME, adapter_state, compare_files, fill, forward, inputs_of, record_inputs, record_outputs, record_training, reload, save, trained,
                       wrap)
from .lora_models import MODELS, load, write_checkpoint
from .lora_training import HYPER, train
from .qlora_kinds import WITHOUT_ADAPTER, adapter, kinds, unpack, unpack_by_bitsandbytes, widths

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)   # it tells of every int8 product
MEANING = {
    "computed_in": "float32 throughout, from weights as unpacked: of int8, what bitsandbytes computes in training on a CPU",
    "int8_eval": "as bitsandbytes infers: activations rounded to int8 as well, but for columns that exceed llm_int8_threshold",
    "unpacked": "of 4 bits exactly quant_map[code] * absmax in float32; of int8 weight * SCB / 127, within a rounding of it",
    "quantised[kind].unpacks_to": "dtype of bitsandbytes' dequantize_4bit (quant_state.dtype): its backward pass rounds to it, its forward pass does not",
}


def quantise(family, ckpt, folder, arguments):
    """As a user does: loaded with a BitsAndBytesConfig, saved, and the tokenizer put beside it."""
    from transformers import BitsAndBytesConfig
    arguments = dict(arguments)
    model = load(family, ckpt, arguments.pop("dtype"), quantization_config=BitsAndBytesConfig(**arguments))
    model.save_pretrained(folder)
    for file in ckpt.iterdir():
        if file.name != "model.safetensors" and not (folder / file.name).exists():
            shutil.copy(file, folder)
    return model


def same_again(family, model, folder, batch, dtype):
    """What was saved computes what was in memory when it was saved."""
    with torch.no_grad():
        ours, theirs = (m(**batch).logits for m in (model, load(family, folder, dtype)))
    if not torch.equal(ours, theirs):
        raise RuntimeError(f"{folder.name} computes other logits when it is loaded again: {(ours - theirs).abs().max():.3e}")


def unpacked(family, model, folder):
    """({name in the folder: fp32}, what is said of it); bitsandbytes and the reading by hand must agree."""
    values, told = unpack(read_weights(folder)), {}
    found = {family.released(k): v for k, v in unpack_by_bitsandbytes(model).items()}
    if set(found) != set(values):
        raise RuntimeError(f"{folder.name}: quantised are {sorted(set(found) ^ set(values))} either in memory or in the folder")
    for name, (value, kind, dtype) in found.items():
        mine = values[name].to(getattr(torch, dtype)).float() if kind == "Linear4bit" else values[name]
        allowed = 0.0 if kind == "Linear4bit" else 2e-7 * value.abs().max()
        if mine.shape != value.shape or (mine - value).abs().max() > allowed:
            raise RuntimeError(f"{folder.name}: {name} is unpacked to other numbers")
        told.update(module=kind, unpacks_to=dtype)
    return values, {**told, "tensors": sorted(values)}


def outputs_of(family, folder, kind, batch):
    out = {kind: forward(load(family, folder).train(), batch)}
    if kind == "int8":
        out["int8_eval"] = forward(load(family, folder).eval(), batch)
    return out


def make(ctx, name):
    family = MODELS[name.split("_", 1)[1]]()
    folder = fresh_dir(ctx.out / name)
    ckpt = folder / "checkpoint"
    write_checkpoint(ctx, family, ckpt, torch.bfloat16, widths)
    rec = Recorder(name, ctx.seed)
    batches = family.batches(ckpt, folder, ctx.seed, 1 + HYPER["steps"] * HYPER["accumulation"])
    record_inputs(rec, family, batches)
    meta = rec.meta
    meta.update(hyper=copy.deepcopy(HYPER), about=MEANING, quantised={}, adapters={}, training={})
    outputs = {"base": forward(load(family, ckpt), batches[0])}
    (folder / "unpacked").mkdir()
    for kind, arguments in kinds(family).items():
        quantised = folder / "quantised" / kind
        model = quantise(family, ckpt, quantised, arguments)
        values, told = unpacked(family, model, quantised)
        same_again(family, model, quantised, batches[0], arguments["dtype"])
        meta["quantised"][kind] = {"folder": f"quantised/{kind}", "quantised_from": str(arguments["dtype"]).removeprefix("torch."), **told,
                                   "skipped": sorted(model.hf_quantizer.modules_to_not_convert)}
        outputs.update(outputs_of(family, quantised, kind, batches[0]))
        if kind in WITHOUT_ADAPTER:
            continue
        save_file(values, folder / "unpacked" / f"{kind}.safetensors", metadata={"format": "pt"})
        over = folder / "adapters" / kind
        model = wrap(family, quantised, adapter(family))
        fill(model, ctx.seed, kind)
        save(model, over, base=f"../../quantised/{kind}")
        meta["adapters"][kind] = {"adapter": f"adapters/{kind}", "base": f"quantised/{kind}", "case": f"{kind}+lora", "inputs": "batch"}
        outputs[f"{kind}+lora"] = forward(reload(family, quantised, over).train(), batches[0])
        model = reload(family, quantised, over).train()
        record_training(rec, model, batches[1:], kind)
        save(model, folder / "final" / kind, base=f"../../quantised/{kind}")
    record_outputs(rec, outputs)
    rec.save(folder)


def verify(folder):
    family = MODELS[folder.name.split("_", 1)[1]]()
    stored, meta = load_reference(folder)
    ckpt = folder / "checkpoint"
    batch, micro = inputs_of(stored, meta)
    outputs, rows = {"base": forward(load(family, ckpt), batch)}, []
    for kind, entry in meta["quantised"].items():
        quantised = folder / entry["folder"]
        values, told = unpacked(family, load(family, quantised), quantised)
        rows.append((f"{kind}: what is quantised", 0.0, all(entry[k] == v for k, v in told.items())))
        fresh = folder.parent / f".{folder.name}.{kind}"
        try:
            quantise(family, ckpt, fresh, kinds(family)[kind])
            rows += same_bytes(kind, read_weights(fresh), load_file(quantised / "model.safetensors"))
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        outputs.update(outputs_of(family, quantised, kind, batch))
        if kind not in meta["adapters"]:
            continue
        rows += compare_files(f"unpacked/{kind}", folder / "unpacked" / f"{kind}.safetensors", values, 0.0)
        over = folder / "adapters" / kind
        outputs[f"{kind}+lora"] = forward(reload(family, quantised, over).train(), batch)
        model = reload(family, quantised, over).train()
        log, rules = train(model, trained(model), micro, kind)
        rows.append((f"train_{kind}: rules", 0.0, rules == meta["training"][kind]))
        for k, v in log.items():
            d = (stored[f"train_{kind}/out/{k}"] - torch.tensor(v, dtype=torch.float64).float()).abs().max().item()
            rows.append((f"train_{kind}/{k}", d, d < 1e-4))
        rows += compare_files(f"final/{kind}", folder / "final" / kind / NAME, adapter_state(model), 1e-4)
    wanted = {k: v for k, v in stored.items() if "/out/" in k and not k.startswith("train_")}
    return rows + compare_outputs(wanted, outputs, dropped=meta.get("dropped", ()))


def same_bytes(kind, fresh, stored):
    """bitsandbytes still makes these codes of the checkpoint."""
    rows = [(f"quantised/{kind}: names", 0.0, set(fresh) == set(stored))]
    return rows + [(f"quantised/{kind}: {k}", 0.0, v.dtype == fresh[k].dtype and torch.equal(v, fresh[k])) for k, v in stored.items() if k in fresh]
