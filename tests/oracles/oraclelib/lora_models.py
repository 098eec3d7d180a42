"""The tiny models that adapters are put on: their start folders (fp32 on disk), batches and the names of their parts."""
import torch

from . import corpus, fam_internvl, fam_llava, fam_qwen_vl, fam_text, media, tok
from .common import checked_load, generator, init_model, read_json, safe_inputs, tail_labels, write_json, write_weights
from .sizes import sizes


class Text:
    """qwen2 (a tied head, biases of q, k and v) and llama (an untied head, no biases)."""
    language, tower, projector, patch, pixels = "model", None, None, None, None

    def __init__(self, name):
        self.name = name

    def released(self, name):
        return name

    old = released

    def cls(self):
        return fam_text.hf_classes(self.name)

    def write(self, ctx, ckpt):
        t = fam_text.write_family_tokenizer(ctx, self.name, ckpt)
        cfg = {**fam_text.config_for(self.name, tok.padded_vocab(t), t.get_vocab(True)), **sizes(ctx.sizes, ctx.seed, self.name)}
        return {**cfg, "torch_dtype": "float32"}

    def batches(self, ckpt, folder, seed, count):
        from tokenizers import Tokenizer
        t = Tokenizer.from_file(str(ckpt / "tokenizer.json"))
        pad = t.token_to_id({"llama": "<|finetune_right_pad_id|>"}.get(self.name, "<|endoftext|>"))
        lines = [x for x in corpus.training_text(seed) if 30 < len(x) < 120]
        pick = torch.randint(len(lines), (count * 2,), generator=generator(seed, "lora", self.name)).tolist()
        out = []
        for i in range(count):
            rows = [t.encode(lines[j]).ids[:24 - 5 * k] for k, j in enumerate(pick[2 * i:2 * i + 2])]
            ids, mask = fam_text.pad_batch(rows, pad, "right")
            labels = ids.masked_fill(mask == 0, -100)
            labels[0, :4] = -100
            out.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
        return out


class Pictures:
    """Two rows of one picture each a batch, of four pictures in all."""
    language, images = "model.language_model", [("a.png", 61, 35), ("b.png", 40, 50), ("c.png", 33, 64), ("d.png", 30, 30)]
    asked, answers = ["Describe {}.", "What?"], ["a red shape.", "two circles and a line.", "没有。", "noise"]

    def batches(self, ckpt, folder, seed, count):
        from transformers import AutoProcessor
        proc = AutoProcessor.from_pretrained(ckpt)
        pics = [media.model_image(seed, folder / "media", *i) for i in self.images]
        out = []
        for i in range(count):
            shown = (i % 4, (i // 2 + 1) % 4)
            text = [self.say(self.asked[k].format(i % 5), self.answers[p]) for k, p in enumerate(shown)]
            x = safe_inputs(proc(images=[pics[p] for p in shown], text=text, return_tensors="pt", padding=True, padding_side="right", **self.options()))
            x["labels"] = tail_labels(x["input_ids"], x["attention_mask"], self.placeholders(ckpt), 8)
            out.append({k: v for k, v in x.items() if k not in self.unwanted})
        return out

    unwanted = ("mm_token_type_ids",)

    def options(self):
        return {}


class Llava(Pictures):
    name, tower, patch = "llava", "model.vision_tower", "model.vision_tower.embeddings.patch_embedding"
    projector, pixels = "model.multi_modal_projector", "stack"
    released = staticmethod(fam_llava.released_name)
    old = released

    def cls(self):
        import transformers as tf
        return tf.LlavaForConditionalGeneration

    def write(self, ctx, ckpt):
        _, cfg = fam_llava.write_config(ctx, ckpt)
        return {**cfg, "torch_dtype": "float32", "text_config": {**cfg["text_config"], "torch_dtype": "float32"}}

    def say(self, question, answer):
        return f"USER: <image>\n{question} ASSISTANT: {answer}</s>"

    def placeholders(self, ckpt):
        return [read_json(ckpt / "config.json")["image_token_index"]]


class Qwen25VL(Pictures):
    name, tower, patch, unwanted = "qwen2_5_vl", "model.visual", "model.visual.patch_embed.proj", ()
    projector, pixels = "model.visual.merger", "patches"

    def released(self, name):
        return fam_qwen_vl.released_name(self.name, name)

    old = released

    def cls(self):
        import transformers as tf
        return tf.Qwen2_5_VLForConditionalGeneration

    def write(self, ctx, ckpt):
        t = fam_qwen_vl.write_processor(ctx, self.name, ckpt)
        return {**fam_qwen_vl.config(ctx, self.name, tok.padded_vocab(t), t.get_vocab(True)), "torch_dtype": "float32"}

    def say(self, question, answer):
        return fam_qwen_vl.chat(self.name, fam_qwen_vl.IMG + question, answer)

    def placeholders(self, ckpt):
        cfg = read_json(ckpt / "config.json")
        return [cfg["image_token_id"], cfg["video_token_id"]]


class InternVL(Pictures):
    name, tower, patch = "internvl", "model.vision_tower", "model.vision_tower.embeddings.patch_embeddings.projection"
    projector, pixels = "model.multi_modal_projector", "tiles"
    images = [("a.png", 75, 30), ("b.png", 33, 35), ("c.png", 21, 40), ("d.png", 30, 30)]
    released = staticmethod(fam_internvl.released_name)
    old = released

    def cls(self):
        import transformers as tf
        return tf.InternVLForConditionalGeneration

    def write(self, ctx, ckpt):
        t = fam_internvl.write_processor(ctx, ckpt, True)
        cfg = fam_internvl.hf_config(ctx, tok.padded_vocab(t), t.get_vocab(True))
        return {**cfg, "torch_dtype": "float32", **{k: {**cfg[k], "torch_dtype": "float32"} for k in ("text_config", "vision_config")}}

    def say(self, question, answer):
        return f"<|im_start|>user\n<IMG_CONTEXT>\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"

    def placeholders(self, ckpt):
        from tokenizers import Tokenizer
        t = Tokenizer.from_file(str(ckpt / "tokenizer.json"))
        return [t.token_to_id(x) for x in ("<IMG_CONTEXT>", "<img>", "</img>")]

    def options(self):
        return {"images_kwargs": {"max_patches": 1}}


MODELS = {"qwen2": lambda: Text("qwen2"), "llama": lambda: Text("llama"), "llava": Llava, "qwen2_5_vl": Qwen25VL, "internvl": InternVL}


def is_tied(ckpt):
    cfg = read_json(ckpt / "config.json")
    return cfg.get("tie_word_embeddings", False)


def write_checkpoint(ctx, family, ckpt, dtype=torch.float32, changed=lambda cfg: cfg):
    """Weights of `dtype`, of the family's config as `changed` gives it back."""
    from transformers import AutoConfig
    ckpt.mkdir()
    cfg = changed(family.write(ctx, ckpt))
    told = str(dtype).removeprefix("torch.")
    for part in (cfg, *(v for v in cfg.values() if isinstance(v, dict) and "torch_dtype" in v)):
        part["torch_dtype"] = told
    write_json(ckpt / "config.json", cfg)
    model = family.cls()(AutoConfig.from_pretrained(ckpt))
    init_model(model, ctx.seed + 2000, dtype)
    state = {family.released(k): v for k, v in model.state_dict().items() if not (k == "lm_head.weight" and is_tied(ckpt))}
    write_weights(ckpt, state, dtype)


def load(family, ckpt, dtype=torch.float32, **more):
    """All of `dtype` but codes; of a quantised folder transformers 5.23 leaves each `weight` in the dtype of its file, and on a CPU that can
    bitsandbytes infers in bf16 whatever the dtype."""
    model = checked_load(family.cls(), ckpt, dtype, **more)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    for p in model.parameters():
        if p.is_floating_point():
            p.data = p.data.to(dtype)
    return model
