"""The kinds of quantised folders, models whose rows are whole blocks, and what a folder's codes mean, read by hand with numpy."""
import json
from math import lcm

import numpy as np
import torch

HEAD = "lm_head"
BLOCK = 64


# --------------------------------------------------------------------------- kinds
def kinds(family):
    """{kind: arguments of BitsAndBytesConfig}, and `dtype`, that of the weights that codes are made of. Skipped are names in memory: a regex
    from the start up to a dot, or an end of the name. Without any, transformers skips the head (and what it is tied to); with some, those alone."""
    four = {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.float32, "dtype": torch.float32}
    out = {
        "nf4": {**four, "bnb_4bit_quant_type": "nf4"},
        "fp4": {**four, "bnb_4bit_quant_type": "fp4"},
        "nf4_double": {**four, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        "nf4_bf16": {**four, "bnb_4bit_quant_type": "nf4", "dtype": torch.bfloat16},
        "int8": {"load_in_8bit": True, "dtype": torch.float32},
    }
    if family.tower:
        out["nf4_language"] = {**out["nf4"], "llm_int8_skip_modules": [family.tower, family.projector, HEAD]}
    return out


WITHOUT_ADAPTER = ("nf4_bf16",)                           # its numbers are those of nf4, but gradients are rounded: bitsandbytes unpacks to bf16


def adapter(family):
    """Arguments of LoraConfig: of the language model, and of a layer of the tower and of the projector."""
    inside = r"(q_proj|v_proj|down_proj)"
    if not family.tower:
        return {"target_modules": rf"model\..*\.{inside}", "r": 4, "lora_alpha": 8}
    beside = {"llava": r"model\.vision_tower\..*\.0\.(self_attn\.q_proj|mlp\.fc2)|model\.multi_modal_projector\.linear_1",
              "qwen2_5_vl": r"model\.visual\.blocks\.0\.(attn\.qkv|mlp\.down_proj)|model\.visual\.merger\.mlp\.2"}[family.name]
    return {"target_modules": rf"model\.language_model\..*\.{inside}|{beside}", "r": 4, "lora_alpha": 8}


# --------------------------------------------------------------------------- models
def up(size, step=BLOCK):
    return -(-size // step) * step


def widths(cfg):
    """The config with every row a multiple of 64 (bitsandbytes' CPU kernel unpacks others wrongly where there is AVX-512), and two layers."""
    text, vision = cfg.get("text_config", cfg), cfg.get("vision_config")
    heads = text["num_attention_heads"]
    text["hidden_size"] = up(text["hidden_size"], lcm(BLOCK, heads))
    if "head_dim" in text:
        text["head_dim"] = up(text["head_dim"], lcm(BLOCK, heads) // heads)
    text["intermediate_size"] = up(text["intermediate_size"])
    text["num_hidden_layers"] = 2
    if "max_window_layers" in text:
        text["max_window_layers"] = min(text["max_window_layers"], 2)
    if "mrope_section" in (text.get("rope_scaling") or {}):
        pairs = text["hidden_size"] // heads // 2
        text["rope_scaling"]["mrope_section"] = [pairs // 4, (pairs - pairs // 4) // 2, pairs - pairs // 4 - (pairs - pairs // 4) // 2]
    if vision:
        heads = vision.get("num_heads", vision.get("num_attention_heads"))
        vision["hidden_size"] = up(vision["hidden_size"], lcm(BLOCK, heads))
        vision["intermediate_size"] = up(vision["intermediate_size"])
        vision["depth" if "depth" in vision else "num_hidden_layers"] = 2
        if "out_hidden_size" in vision:
            vision.update(out_hidden_size=text["hidden_size"], fullatt_block_indexes=[1])
    return cfg


# --------------------------------------------------------------------------- codes
def unpack_4bit(stored, key):
    """[out, in] float32 of codes over the flat tensor: two a byte, the first in its upper half, each times its block's largest absolute value."""
    state = next(k for k in stored if k.startswith(f"{key}.quant_state.bitsandbytes__"))
    told = json.loads(stored[state].numpy().tobytes())
    largest = stored[f"{key}.absmax"].numpy()
    if f"{key}.nested_absmax" in stored:
        outer = np.repeat(stored[f"{key}.nested_absmax"].numpy(), told["nested_blocksize"])[:largest.size]
        largest = stored[f"{key}.nested_quant_map"].numpy()[largest] * outer + np.float32(told["nested_offset"])
    packed = stored[key].numpy().reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)[:np.prod(told["shape"])]
    values = stored[f"{key}.quant_map"].numpy()[codes] * np.repeat(largest, told["blocksize"])[:codes.size]
    return torch.from_numpy(values.reshape(told["shape"]))


def unpack_8bit(stored, key):
    """[out, in] float32 of whole numbers times a 127th of their row's largest absolute value."""
    rows = stored[key.removesuffix("weight") + "SCB"].numpy()
    return torch.from_numpy(stored[key].numpy().astype(np.float32) * (rows[:, None] / np.float32(127)))


def unpack(stored):
    """{name of the weight: float32} of all that is quantised among a folder's tensors."""
    four = {k.split(".quant_state.")[0] for k in stored if ".quant_state." in k}
    eight = {k.removesuffix("SCB") + "weight" for k in stored if k.endswith(".SCB")}
    return {**{k: unpack_4bit(stored, k) for k in sorted(four)}, **{k: unpack_8bit(stored, k) for k in sorted(eight)}}


def unpack_by_bitsandbytes(model):
    """{name in memory of the weight: (float32, class, dtype that it is unpacked to)}."""
    from bitsandbytes.functional import dequantize_4bit, int8_vectorwise_dequant
    out = {}
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind == "Linear4bit":
            value = dequantize_4bit(module.weight.data, module.weight.quant_state)
        elif kind == "Linear8bitLt":
            value = int8_vectorwise_dequant(module.weight.data, module.weight.SCB)
        else:
            continue
        out[f"{name}.weight"] = (value.float(), kind, str(value.dtype).removeprefix("torch."))
    return out
