"""LLaVA 1.5 as its authors publish it, made of the same weights: their names and config keys, pytorch_model*.bin, tokenizer.model, the
CLIP tower in a folder beside it. Rows are an own reading of haotian-liu/LLaVA: conversation.py (vicuna_v1, mistral_instruct), mm_utils.py
(tokenizer_image_token, expand2square, process_images) and train.py (preprocess_multimodal)."""
import shutil

import torch

from . import media
from .common import read_bins, read_json, write_bins, write_json
from .slow_pieces import SlowTokenizer

TOWER = "vision_tower"                                   # the folder beside the checkpoint
IMAGE_TOKEN_INDEX = -200
SYSTEM = ("A chat between a curious user and an artificial intelligence assistant. "
          "The assistant gives helpful, detailed, and polite answers to the user's questions.")
IMAGES = [("tall.png", 21, 47), ("wide.jpg", 90, 33), ("square.png", 40, 40)]


def authors_name(name, linear=False):
    """llava-hf's name of a tensor -> the authors', or the tower's own."""
    if name.startswith("vision_tower."):
        return name[len("vision_tower."):]
    if name.startswith("language_model."):
        return name[len("language_model."):]
    for ours, theirs in (("linear_1", "mm_projector.0"), ("linear_2", "mm_projector.2")):
        name = name.replace("multi_modal_projector." + ours, "model." + theirs)
    return name


def config(hf):
    """The authors' config.json of the model that `hf` describes; image_token_index is ours, for recorded inputs of transformers."""
    text, mistral = dict(hf["text_config"]), hf["text_config"].get("model_type") == "mistral"
    for key in ("architectures", "model_type", "torch_dtype"):
        text.pop(key, None)
    return {"architectures": ["LlavaMistralForCausalLM" if mistral else "LlavaLlamaForCausalLM"],
            "model_type": "llava_mistral" if mistral else "llava_llama", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            "freeze_mm_mlp_adapter": False, "hidden_act": "silu", "image_aspect_ratio": "pad", "image_grid_pinpoints": None,
            "image_token_index": hf["image_token_index"], "mm_hidden_size": hf["vision_config"]["hidden_size"],
            "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": None, "mm_use_im_patch_token": False, "mm_use_im_start_end": False,
            "mm_vision_select_feature": "patch" if hf["vision_feature_select_strategy"] == "default" else "cls_patch",
            "mm_vision_select_layer": hf["vision_feature_layer"], "mm_vision_tower": "../" + TOWER, "pretraining_tp": 1,
            "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.31.0", "tune_mm_mlp_adapter": False,
            "unfreeze_mm_vision_tower": False, "use_cache": True, "use_mm_proj": True, **text}


def write(folder, ckpt, hf, state):
    """checkpoint_original and the tower's folder, of llava-hf's config and tensors. The tower is what a whole CLIP's folder would hold."""
    original, tower = folder / "checkpoint_original", folder / TOWER
    original.mkdir()
    tower.mkdir()
    write_json(original / "config.json", config(hf))
    for name in ("tokenizer.model", "special_tokens_map.json"):
        shutil.copy(ckpt / name, original / name)
    specials = read_json(original / "special_tokens_map.json")
    write_json(original / "special_tokens_map.json", {**specials, "pad_token": "<unk>"})
    write_json(original / "tokenizer_config.json", {
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "clean_up_tokenization_spaces": False, "eos_token": "</s>",
        "legacy": False, "model_max_length": 2048, "pad_token": None, "padding_side": "right", "sp_model_kwargs": {},
        "tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>"})
    write_json(original / "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                                                     "transformers_version": "4.31.0"})
    named = {authors_name(k): v.to(torch.float16) for k, v in state.items()}
    write_bins(original, {k: v for k, v in named.items() if not k.startswith("vision_model.")})
    vision = {k: v for k, v in named.items() if k.startswith("vision_model.")}
    other = {"logit_scale": torch.ones(()), "text_model.final_layer_norm.weight": torch.ones(8), "visual_projection.weight": torch.ones(4, 8),
             "vision_model.embeddings.position_ids": torch.arange(3)[None]}
    torch.save({**vision, **other}, tower / "pytorch_model.bin")
    write_json(tower / "config.json", {"architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": 4,
                                       "text_config": {"hidden_size": 8, "model_type": "clip_text_model"},
                                       "vision_config": {**hf["vision_config"], "projection_dim": 4}})
    shutil.copy(ckpt / "preprocessor_config.json", tower / "preprocessor_config.json")


def read(folder):
    """(config of llava-hf, its tensors as transformers 5 names them) of what write() has written."""
    cfg, tower = read_json(folder / "checkpoint_original" / "config.json"), read_json(folder / TOWER / "config.json")
    text = {k: v for k, v in cfg.items() if not k.startswith("mm_") and k not in ("architectures", "image_token_index", "image_aspect_ratio")}
    text["model_type"] = "mistral" if cfg["model_type"] == "llava_mistral" else "llama"
    hf = {"model_type": "llava", "image_token_index": cfg["image_token_index"], "projector_hidden_act": "gelu", "text_config": text,
          "tie_word_embeddings": False, "vision_config": tower["vision_config"], "vision_feature_layer": cfg["mm_vision_select_layer"],
          "vision_feature_select_strategy": {"patch": "default", "cls_patch": "full"}[cfg["mm_vision_select_feature"]]}
    state = {}
    for name, tensor in read_bins(folder / "checkpoint_original").items():
        for theirs, ours in (("model.mm_projector.0", "model.multi_modal_projector.linear_1"),
                             ("model.mm_projector.2", "model.multi_modal_projector.linear_2"), ("model.", "model.language_model."), ("", "")):
            if name.startswith(theirs):
                state[ours + name[len(theirs):]] = tensor.float()
                break
    for name, tensor in read_bins(folder / TOWER).items():
        if name.startswith("vision_model.") and not name.endswith("position_ids"):
            state["model.vision_tower." + name[len("vision_model."):]] = tensor.float()
    return hf, state


def tokenizer_image_token(prompt, tokenizer, each):
    """Each text between pictures is a text of its own, whose first token is dropped where it is the one that begins texts."""
    chunks = [tokenizer.encode(chunk, True) for chunk in prompt.split("<image>")]
    begins = bool(chunks[0]) and chunks[0][0] == tokenizer.id_of("<s>")
    ids = chunks[0][:1] if begins else []
    for i, chunk in enumerate(chunks):
        ids += ([IMAGE_TOKEN_INDEX] * each if i else []) + (chunk[1:] if begins else chunk)
    return ids


def placed(text):
    """preprocess_multimodal of a message with one picture; with several, what a person wrote."""
    if text.count("<image>") != 1:
        return text
    return ("<image>\n" + text.replace("<image>", "").strip()).strip()


def prompt(turns, mistral, system=None):
    """What the model is asked: `turns` ends with a question."""
    out = "" if mistral else (SYSTEM if system is None else system) + " "
    for i, turn in enumerate(map(placed, turns)):
        if mistral:
            first = f"<<SYS>>\n{system}\n<</SYS>>\n\n" if system and i == 0 else ""
            out += f" {turn} </s>" if i % 2 else f"[INST] {first}{turn} [/INST]"
        else:
            out += f"ASSISTANT: {turn}</s>" if i % 2 else f"USER: {turn} "
    return out if mistral else out + "ASSISTANT:"


def pixels(path, size, mean, std, resample=3):
    """expand2square with the mean colour, then the tower's image processor, all by Pillow."""
    import numpy as np
    from PIL import Image
    image = Image.open(path).convert("RGB")
    edge = max(image.size)
    square = Image.new("RGB", (edge, edge), tuple(int(x * 255) for x in mean))
    square.paste(image, ((edge - image.width) // 2, (edge - image.height) // 2))
    values = np.asarray(square.resize((size, size), resample)).astype(np.float64) * (1 / 255)
    values = (values.astype(np.float32) - np.array(mean, np.float32)) / np.array(std, np.float32)
    return torch.from_numpy(values).permute(2, 0, 1).contiguous()


def mixed(ctx, folder, hf):
    """(inputs, rows): pictures in front of, within and behind a question, none, two in one, an earlier answer, a system message."""
    tokenizer, mistral = SlowTokenizer(folder / "checkpoint_original"), hf["text_config"].get("model_type") == "mistral"
    processor = read_json(folder / TOWER / "preprocessor_config.json")
    for image in IMAGES:
        media.model_image(ctx.seed, folder / "media", *image)
    tall, wide, square = (pixels(folder / "media" / i[0], hf["vision_config"]["image_size"], processor["image_mean"], processor["image_std"])
                          for i in IMAGES)
    talks = [(["<image>\nWhat is this?"], None, ["tall.png"]), (["What, <image> 这?"], None, ["wide.jpg"]),
             ([" Only text. "], None, []), (["<image>\nand <image> ?", "Both.", "Sure, 对?"], None, ["square.png", "tall.png"]),
             (["See it.<image>"], "Be brief.", ["square.png"])]
    ids = [tokenizer_image_token(prompt(turns, mistral, system), tokenizer, hf["image_seq_length"]) for turns, system, _ in talks]
    longest = max(map(len, ids))
    marked = [[hf["image_token_index"] if i == IMAGE_TOKEN_INDEX else i for i in row] for row in ids]
    inputs = {"input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in marked]),
              "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids]),
              "pixel_values": torch.stack([tall, wide, square, tall, square])}
    role = lambda i: "assistant" if i % 2 else "user"  # noqa: E731
    rows = [{"messages": ([{"role": "system", "content": system}] if system else [])
             + [{"role": role(i), "content": text} for i, text in enumerate(turns)], **({"images": images} if images else {})}
            for turns, system, images in talks]
    return inputs, rows
