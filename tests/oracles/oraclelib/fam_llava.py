"""Family llava: LlavaForConditionalGeneration (llava-1.5 layout, fp16 on disk, llava-hf tensor names) and, with the same weights, the
layout of its authors (llava_orig.py)."""
import torch

from . import llava_orig as orig
from . import media, templates, tok
from .sizes import sizes
from .common import (Recorder, assert_same_weights, cases_from_reference, checked_load, compare_outputs, dtype_spread,
                     fresh_dir, init_model, load_reference, pick, record_cases, safe_inputs, tail_labels, write_json,
                     write_v5_view, write_weights)
from .running import greedy, run_case

IMAGES = [("a.png", 70, 56), ("b.jpg", 90, 131)]
PROMPTS = ["USER: <image>\nWhat is shown in this picture? ASSISTANT: A licence.", "USER: <image>\n你好? ASSISTANT: 世界"]


def released_name(name):
    """In-memory name (transformers 5) -> name in the released llava-hf/llava-1.5 checkpoints."""
    if name.startswith("model.vision_tower."):
        rest = name[len("model.vision_tower."):]
        return "vision_tower." + (rest if rest.startswith("vision_model.") else "vision_model." + rest)
    if name.startswith("model.language_model."):
        return "language_model.model." + name[len("model.language_model."):]
    if name.startswith("model.multi_modal_projector."):
        return name[len("model."):]
    if name.startswith("lm_head."):
        return "language_model." + name
    raise KeyError(name)


def config(ctx, vocab, image_token, pad_token):
    cfg = {
        "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": image_token, "model_type": "llava", "pad_token_id": pad_token, "projector_hidden_act": "gelu",
        "text_config": {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
                        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512, "model_type": "llama",
                        "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": vocab},
        "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.37.2",
        "vision_config": {"hidden_size": 48, "image_size": 56, "intermediate_size": 96, "model_type": "clip_vision_model",
                          "num_attention_heads": 4, "num_hidden_layers": 4, "patch_size": 14, "projection_dim": 32,
                          "vocab_size": 32000},
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": vocab}
    cfg.update(sizes(ctx.sizes, ctx.seed, "llava"))
    cfg["text_config"].update(sizes(ctx.sizes, ctx.seed, "llava_text"))
    vision = cfg["vision_config"]
    vision.update(sizes(ctx.sizes, ctx.seed, "llava_vision"))
    cfg["image_seq_length"] = (vision["image_size"] // vision["patch_size"]) ** 2 + (cfg["vision_feature_select_strategy"] == "full")
    return cfg


def write_config(ctx, ckpt):
    """Processor files and config.json; returns (tokenizer, config)."""
    vision = {"image_size": 56, "patch_size": 14, **sizes(ctx.sizes, ctx.seed, "llava_vision")}
    strategy = sizes(ctx.sizes, ctx.seed, "llava").get("vision_feature_select_strategy", "default")
    t = write_processor(ctx, ckpt, vision["image_size"], vision["patch_size"], strategy)
    cfg = config(ctx, tok.padded_vocab(t), t.token_to_id("<image>"), t.token_to_id("<pad>"))
    write_json(ckpt / "config.json", cfg)
    return t, cfg


def write_processor(ctx, ckpt, size, patch, strategy):
    t = ctx.toks.llama2()
    tok.save_tokenizer(t, ckpt, {
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "clean_up_tokenization_spaces": False,
        "eos_token": "</s>", "legacy": False, "model_max_length": 1000000000000000019884624838656, "pad_token": "<pad>",
        "padding_side": "left", "processor_class": "LlavaProcessor", "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>", "use_default_system_prompt": False}, sp_model=ctx.toks.base("llama2"),
        special_map={"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})
    write_json(ckpt / "added_tokens.json", {"<image>": t.token_to_id("<image>"), "<pad>": t.token_to_id("<pad>")})
    write_json(ckpt / "preprocessor_config.json", {
        "crop_size": {"height": size, "width": size}, "do_center_crop": True, "do_convert_rgb": True, "do_normalize": True,
        "do_rescale": True, "do_resize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_processor_type": "CLIPImageProcessor", "image_std": [0.26862954, 0.26130258, 0.27577711],
        "processor_class": "LlavaProcessor", "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": size}})
    write_json(ckpt / "processor_config.json", {
        "image_token": "<image>", "num_additional_image_tokens": 1, "patch_size": patch, "processor_class": "LlavaProcessor",
        "vision_feature_select_strategy": strategy})
    write_json(ckpt / "chat_template.json", {"chat_template": templates.LLAVA})
    return t


def load(ckpt, dtype=torch.float32, attn="eager"):
    from transformers import LlavaForConditionalGeneration
    return checked_load(LlavaForConditionalGeneration, ckpt, dtype, attn)


def grad_map(model):
    mem = ["model.vision_tower.embeddings.patch_embedding.weight", "model.vision_tower.embeddings.position_embedding.weight",
           "model.vision_tower.encoder.layers.0.self_attn.k_proj.weight", "model.vision_tower.encoder.layers.1.self_attn.q_proj.weight", "model.vision_tower.pre_layrnorm.weight",
           "model.multi_modal_projector.linear_1.weight", "model.multi_modal_projector.linear_2.bias",
           "model.language_model.layers.0.self_attn.v_proj.weight", "model.language_model.layers.2.mlp.gate_proj.weight",
           "model.language_model.norm.weight"]
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    return pick(model, {released_name(m): m for m in mem if m in trained})


def load_original(folder):
    """The authors' folders through the same class."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration
    cfg, state = orig.read(folder)
    cfg["text_config"].pop("architectures", None)
    model = LlavaForConditionalGeneration._from_config(LlavaConfig(**cfg), attn_implementation="eager").float().eval()
    model.load_state_dict(state, strict=True)
    return model


def compute(ckpt, cases):
    return compute_with(load(ckpt), cases)


def compute_with(model, cases):
    vt = model.model.vision_tower
    hooks = {"vision_embeddings": vt.embeddings, "vision_layer_0": vt.encoder.layers[0],
             "vision_feature_layer": vt.encoder.layers[model.config.vision_feature_layer], "projector": model.model.multi_modal_projector}
    out = {}
    for name, ins in cases.items():
        if name.startswith("gen"):
            ids, margin = greedy(model, ins)
            out[name] = {"generated": ids, "generated_margin": margin}
        else:
            has_image = "pixel_values" in ins
            out[name] = run_case(model, ins, hooks=hooks if has_image else {}, grads=grad_map(model) if has_image else (),
                                 final_norm=model.model.language_model.norm)
    return out


MEANING = {
    "vision_embeddings": "CLIP patch+class embeddings + positions (before pre_layrnorm), index 0 = CLS",
    "vision_layer_0": "output of CLIP encoder layer 0",
    "vision_feature_layer": "hidden_states[vision_feature_layer] incl. CLS (the output of that encoder layer)",
    "projector": "projector output, one row per image; CLS dropped unless vision_feature_select_strategy is full",
}


def make(ctx, family):
    from transformers import AutoConfig, AutoProcessor, LlavaForConditionalGeneration
    folder = fresh_dir(ctx.out / family)
    ckpt = folder / "checkpoint"
    ckpt.mkdir()
    t, cfg = write_config(ctx, ckpt)
    image_id, pad_id = cfg["image_token_index"], cfg["pad_token_id"]
    write_json(ckpt / "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2,
                                                 "pad_token_id": pad_id, "transformers_version": "4.37.2"})
    model = LlavaForConditionalGeneration(AutoConfig.from_pretrained(ckpt))
    init_model(model, ctx.seed, torch.float16)
    write_weights(ckpt, {released_name(k): v for k, v in model.state_dict().items()}, torch.float16)
    assert_same_weights(model, load(ckpt))
    write_v5_view(model, folder)

    proc = AutoProcessor.from_pretrained(ckpt)
    pics = [media.model_image(ctx.seed, folder / "media", *i) for i in IMAGES]
    batch = safe_inputs(proc(images=pics, text=PROMPTS, return_tensors="pt", padding=True, padding_side="right"))
    batch["labels"] = tail_labels(batch["input_ids"], batch["attention_mask"], [image_id])
    left = safe_inputs(proc(images=pics, text=[p.split(" ASSISTANT:")[0] + " ASSISTANT:" for p in PROMPTS], return_tensors="pt",
                            padding=True, padding_side="left"))
    two = safe_inputs(proc(images=pics, text="USER: <image>\n<image>\nCompare them. ASSISTANT:", return_tensors="pt"))
    text = safe_inputs(proc(text="USER: Hello there. ASSISTANT:", return_tensors="pt"))
    text["labels"] = text["input_ids"].clone()
    cases = {"batch": batch, "two_images": two, "text_only": text, "gen_left": left}
    for c in cases.values():
        c.pop("mm_token_type_ids", None)
    rec = Recorder(family, ctx.seed)
    record_cases(rec, cases, compute(ckpt, cases), MEANING)
    orig.write(folder, ckpt, cfg, {released_name(k): v for k, v in model.state_dict().items()})
    mixed, rows = orig.mixed(ctx, folder, cfg)
    out = compute(ckpt, {"original_mixed": mixed})["original_mixed"]
    record_cases(rec, {"original_mixed": mixed}, {"original_mixed": {k: out[k] for k in ("logits", "projector", "pooled")}}, MEANING)
    rec.meta["rows"] = {"original_mixed": rows}
    rec.meta["prompts"] = PROMPTS
    rec.meta["ids_from_tokenizer_json"] = [t.encode(p.replace("<image>", "<image>" * cfg["image_seq_length"])).ids for p in PROMPTS]
    rec.meta["ids_equal_AutoProcessor"] = [ids == row[m.bool()].tolist() for ids, row, m in zip(
        rec.meta["ids_from_tokenizer_json"], batch["input_ids"], batch["attention_mask"])]
    rec.meta["media"] = [i[0] for i in IMAGES]
    rec.meta["spread"] = dtype_spread(lambda d, a: load(ckpt, d, a), {k: v for k, v in cases.items() if not k.startswith("gen")})
    rec.save(folder)


def verify(folder):
    stored, meta = load_reference(folder)
    cases = cases_from_reference(stored)
    kept = {name: ("logits", "projector", "pooled") for name in cases if name.startswith("original_")}   # of these cases no more is stored
    rows = []
    for model in (load(folder / "checkpoint"), *([load_original(folder)] if (folder / "checkpoint_original").exists() else [])):
        out = compute_with(model, cases)
        out = {case: {k: v for k, v in named.items() if k in kept.get(case, named)} for case, named in out.items()}
        rows += compare_outputs(stored, out, dropped=meta.get("dropped", ()))
    return rows
