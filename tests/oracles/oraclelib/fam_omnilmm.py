"""Family omnilmm with the published names in pytorch_model*.bin, tokenizer.model and added_tokens.json; reference = omnilmm_ref.py."""
import torch

from . import media, tok
from . import omnilmm_ref as ref
from .common import (Recorder, cases_from_reference, compare_outputs, fresh_dir, init_model, load_reference, read_bins, read_json,
                     record_cases, tail_labels, write_bins, write_json)
from .running import pooled_mean
from .sizes import sizes
from .slow_pieces import SlowTokenizer

IMAGES = [("a.png", 70, 56), ("b.jpg", 50, 91), ("c.png", 33, 33)]
MARKS = ["<im_patch>", "<im_start>", "<im_end>", "<box>", "</box>", "<ref>", "</ref>", "<quad>", "</quad>"]
SYSTEM = ("You are an artificial intelligence assistant, which gives helpful, detailed, and polite answers to the human's questions.")
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def config(ctx, vocab):
    cfg = {"architectures": ["OmniLMMForCausalLM"], "model_type": "omnilmm", "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
           "hidden_act": "silu", "hidden_size": 128, "image_size": 56, "initializer_range": 0.02, "intermediate_size": 96,
           "max_position_embeddings": 2048, "mm_hidden_size": 48, "mm_use_im_start_end": True,
           "mm_vision_tower": "eva02_enormous_patch14_clip_224.laion2b_plus", "num_attention_heads": 4, "num_hidden_layers": 2,
           "num_key_value_heads": 2, "num_query": 9, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 21,
           "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.2", "tune_clip": True, "use_cache": True,
           "use_mm_proj": True, "vocab_size": vocab,
           "vision_config": {"hidden_size": 48, "image_size": 28, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3,
                             "patch_size": 14}}
    cfg.update(sizes(ctx.sizes, ctx.seed, "omnilmm"))
    cfg["vision_config"].update(sizes(ctx.sizes, ctx.seed, "omnilmm_vision"))
    return cfg


def write_tokenizer(ctx, ckpt):
    import sentencepiece as spm
    model = ctx.toks.base("llama2")
    top = spm.SentencePieceProcessor(model_proto=model).get_piece_size()
    (ckpt / "tokenizer.model").write_bytes(model)
    write_json(ckpt / "added_tokens.json", {mark: top + i for i, mark in enumerate(MARKS)})
    write_json(ckpt / "special_tokens_map.json", {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>", "unk_token": "<unk>",
                                                  "additional_special_tokens": MARKS})
    write_json(ckpt / "tokenizer_config.json", {
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>",
        "clean_up_tokenization_spaces": False, "legacy": True, "model_max_length": 2048, "padding_side": "right", "sp_model_kwargs": {},
        "tokenizer_class": "LlamaTokenizer"})
    return SlowTokenizer(ckpt), top + len(MARKS)


def load(ckpt):
    model = ref.build(read_json(ckpt / "config.json"))
    state = {n: t.float() for n, t in read_bins(ckpt).items()}
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


GRADS = ["model.vision_tower.cls_token", "model.vision_tower.pos_embed", "model.vision_tower.patch_embed.proj.weight",
         "model.vision_tower.blocks.0.attn.qkv.weight", "model.vision_tower.blocks.0.attn.q_bias", "model.vision_tower.blocks.0.attn.v_bias",
         "model.vision_tower.blocks.0.norm1.weight", "model.vision_tower.blocks.0.mlp.fc1.weight", "model.vision_tower.norm.weight",
         "model.resampler.query", "model.resampler.proj", "model.resampler.kv_proj.weight", "model.resampler.attn.in_proj_weight",
         "model.resampler.attn.out_proj.bias", "model.resampler.ln_q.weight", "model.resampler.ln_kv.bias", "model.resampler.ln_post.weight",
         "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]


def generate(model, patch, ins, steps=16):
    from transformers import GenerationConfig
    with torch.no_grad():
        x = ref.embed(model, ins["input_ids"], patch, ins.get("pixel_values"))
        out = model.generate(inputs_embeds=x, attention_mask=ins["attention_mask"], generation_config=GenerationConfig(
            do_sample=False, max_new_tokens=steps, eos_token_id=None, pad_token_id=0, return_dict_in_generate=True, output_logits=True))
    margins = [lg.topk(2).values for lg in out.logits]
    return out.sequences[:, -steps:], torch.stack([m[:, 0] - m[:, 1] for m in margins], 1)


def compute(ckpt, cases):
    model, patch = load(ckpt), read_json(ckpt / "added_tokens.json")["<im_patch>"]
    params, out = dict(model.named_parameters()), {}
    for name, ins in cases.items():
        if name.startswith("gen"):
            ids, margin = generate(model, patch, ins)
            out[name] = {"generated": ids, "generated_margin": margin}
            continue
        model.zero_grad(set_to_none=True)
        o = {}
        x = ref.embed(model, ins["input_ids"], patch, ins.get("pixel_values"), o)
        res = model(inputs_embeds=x, attention_mask=ins["attention_mask"], labels=ins.get("labels"), output_hidden_states=True)
        o.update(logits=res.logits, inputs_embeds=x, last_hidden_state=res.hidden_states[-1])
        if model.config.num_hidden_layers > 1:
            o["layer_0"] = res.hidden_states[1]
        o = {k: v.detach() for k, v in o.items()}
        o["pooled"] = pooled_mean(o["last_hidden_state"], ins["attention_mask"])
        if "labels" in ins:
            o["loss"] = res.loss.detach()
            res.loss.backward()
            o.update({"grad:" + n: params[n].grad.clone() for n in GRADS if n in params and params[n].numel() < 60000})
        out[name] = o
    return out


MEANING = {"pixel_values": "pictures resized to a square by Pillow's bicubic, as torchvision's transforms prepare them",
           "vision_embeddings": "class token and patches with resized positions", "vision_features": "tower output after its norm, the class token first",
           "resampler": "query tokens per picture"}


def pixels(path, size):
    import torchvision.transforms as tt
    from PIL import Image
    rules = tt.Compose([tt.Resize((size, size), interpolation=tt.InterpolationMode.BICUBIC), tt.ToTensor(), tt.Normalize(mean=MEAN, std=STD)])
    return rules(Image.open(path).convert("RGB"))


def prompt(cfg, turns, answer=None):
    """Zephyr's format over the published system message; <image> is a picture."""
    picture = "<im_start>" + "<im_patch>" * cfg["num_query"] + "<im_end>"
    text = f"<|system|>\n{SYSTEM}</s>\n"
    for i, turn in enumerate(turns):
        text += f"<|{'assistant' if i % 2 else 'user'}|>\n{turn.replace('<image>', picture)}</s>\n"
    return text + "<|assistant|>\n" + (f"{answer}</s>" if answer is not None else "")


def batch(t, texts, side, pics=()):
    enc = [t.encode(x, True) for x in texts]
    n = max(map(len, enc))
    pad = lambda e, v, fill: [fill] * (n - len(e)) + v if side == "left" else v + [fill] * (n - len(e))  # noqa: E731
    out = {"input_ids": torch.tensor([pad(e, e, 0) for e in enc]), "attention_mask": torch.tensor([pad(e, [1] * len(e), 0) for e in enc])}
    if pics:
        out["pixel_values"] = torch.stack(list(pics))
    return out


def make(ctx, family):
    folder = fresh_dir(ctx.out / family)
    ckpt = folder / "checkpoint"
    ckpt.mkdir()
    t, size = write_tokenizer(ctx, ckpt)
    cfg = config(ctx, (size // 8 + 1) * 8)
    write_json(ckpt / "config.json", cfg)
    write_json(ckpt / "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "4.36.2"})
    model = ref.build(cfg)
    places = model.model.resampler.pos_embed.detach().clone()
    init_model(model, ctx.seed, torch.bfloat16)
    model.model.resampler.pos_embed.data.copy_(places)
    tied = {"lm_head.weight"} if cfg["tie_word_embeddings"] else set()
    write_bins(ckpt, {k: v.detach().to(torch.bfloat16).clone() for k, v in model.state_dict().items() if k not in tied})
    for image in IMAGES:
        media.model_image(ctx.seed, folder / "media", *image)
    a, b, c = (pixels(folder / "media" / i[0], cfg["image_size"]) for i in IMAGES)
    rows = {"batch": ([["<image>\nWhat is in the picture?"], ["Hello, 世界"], ["Where? <image>", "There.", "Sure?"]], "right", [0, None, 1]),
            "mixed": ([["<image>\n对比"], ["Only text."], ["<image>\nand this?", "No.", "<ref>it</ref>?"]], "left", [1, None, 2]),
            "gen_left": ([["<image>\nWhat?"], ["短"], ["See <image> here"]], "left", [2, None, 0])}
    pics = [a, b, c]
    cases = {n: batch(t, [prompt(cfg, x) for x in turns], side, [pics[i] for i in of if i is not None]) for n, (turns, side, of) in rows.items()}
    cases["text_only"] = batch(t, [prompt(cfg, ["def f(x):\n    return x * 2"])], "right")
    cases["batch"]["labels"] = tail_labels(cases["batch"]["input_ids"], cases["batch"]["attention_mask"], [t.ids["<im_patch>"]], 8)
    rec = Recorder(family, ctx.seed)
    record_cases(rec, cases, compute(ckpt, cases), MEANING)
    role = lambda i: "assistant" if i % 2 else "user"  # noqa: E731
    rec.meta["rows"] = {n: [{"messages": [{"role": role(j), "content": x} for j, x in enumerate(talk)],
                             **({"images": [IMAGES[i][0]]} if i is not None else {})} for talk, i in zip(turns, of)]
                        for n, (turns, _, of) in rows.items()}
    rec.meta["rows"]["mixed"][2] = {"images": ["c.png"], "conversations": [     # a picture without a mark
        {"from": "human", "value": "and this?"}, {"from": "gpt", "value": "No."}, {"from": "human", "value": "<ref>it</ref>?"}]}
    rec.meta["media"] = [i[0] for i in IMAGES]
    rec.save(folder)


def verify(folder):
    stored, meta = load_reference(folder)
    ckpt = folder / "checkpoint"
    rows = compare_outputs(stored, compute(ckpt, cases_from_reference(stored)), dropped=meta.get("dropped", ()))
    model = load(ckpt)
    apart = ref.vs_timm(model.model.vision_tower, read_json(ckpt / "config.json"), stored["batch/in/pixel_values"])
    if apart is not None:
        rows.append(("tower against timm's Eva", apart, apart < 1e-5))
    return rows
