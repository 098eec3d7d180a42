"""Model sizes for the text families and llava: the small default, a fixed odd one, or one drawn from the seed.

A reader that has only ever seen four heads of sixteen gets everything else wrong: three heads over one kv head, a head
size that is not hidden/heads, tied and untied heads, other rope thetas and scalings in the old and the new spelling,
five layers, patches of eight, the last vision layer with its class token.
"""
import random

KINDS = ("default", "odd", "random")

ODD = {
    "qwen2": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 5, "max_window_layers": 5, "num_attention_heads": 3,
              "num_key_value_heads": 1, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
              "rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama": {"hidden_size": 50, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 5,
              "head_dim": 12, "rope_theta": 10000.0, "rms_norm_eps": 1e-06, "tie_word_embeddings": True,
              "rope_scaling": {"factor": 4.0, "high_freq_factor": 3.0, "low_freq_factor": 1.5, "original_max_position_embeddings": 32,
                               "rope_type": "llama3"}},
    "mistral": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
                "head_dim": 16, "rms_norm_eps": 1e-06, "tie_word_embeddings": True, "sliding_window": 7, "max_position_embeddings": 256,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 0.5,
                                 "mscale": 0.8, "mscale_all_dim": 0.5, "truncate": False}},
    "qwen3": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
              "head_dim": 20, "attention_bias": True, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
              "max_position_embeddings": 96, "rope_scaling": {"type": "dynamic", "factor": 2.0},
              "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    "llava_text": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
                   "head_dim": 16, "rope_theta": 500000.0,
                   "rope_scaling": {"factor": 4.0, "high_freq_factor": 3.0, "low_freq_factor": 1.5, "original_max_position_embeddings": 32,
                                    "rope_type": "llama3"}},
    "llava_vision": {"hidden_size": 36, "intermediate_size": 60, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 8,
                     "image_size": 40},
    "llava": {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
    "qwen2_5_vl": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 2, "max_window_layers": 2, "num_attention_heads": 3,
                   "num_key_value_heads": 1, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": True,
                   "rope_scaling": {"type": "mrope", "mrope_section": [1, 3, 2]}},
    "qwen2_5_vl_vision": {"depth": 3, "hidden_size": 36, "intermediate_size": 50, "num_heads": 3, "patch_size": 4, "spatial_patch_size": 4,
                          "window_size": 24, "fullatt_block_indexes": [2], "tokens_per_second": 3},
    "internvl_text": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 2, "max_window_layers": 2, "num_attention_heads": 3,
                      "num_key_value_heads": 1, "rope_theta": 500000.0, "rms_norm_eps": 1e-05},
    "internvl_vision": {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": [4, 4],
                        "image_size": [24, 24], "norm_type": "rms_norm", "use_qk_norm": True, "attention_bias": False},
    "internvl": {"vision_feature_layer": -2, "tie_word_embeddings": True},
    "minicpm": {"hidden_size": 132, "intermediate_size": 50, "num_attention_heads": 3, "num_key_value_heads": 1, "rope_theta": 500000.0,
                "rms_norm_eps": 1e-05, "tie_word_embeddings": True, "drop_vision_last_layer": True, "query_num": 3, "image_size": 16,
                "num_hidden_layers": 1, "max_window_layers": 1},
    "omnilmm": {"hidden_size": 132, "intermediate_size": 50, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-06,
                "num_query": 4, "image_size": 20, "tie_word_embeddings": True, "sliding_window": 29, "num_hidden_layers": 1},
    "omnilmm_vision": {"hidden_size": 36, "intermediate_size": 50, "num_attention_heads": 3, "patch_size": 4, "image_size": 12},
    "minicpm_audio": {"d_model": 36, "encoder_attention_heads": 3, "encoder_ffn_dim": 144, "encoder_layers": 2, "max_source_positions": 101},
    "qwen2_5_omni": {"seconds_per_chunk": 1, "position_id_per_seconds": 10},
    "qwen2_5_omni_audio": {"d_model": 36, "encoder_attention_heads": 3, "encoder_ffn_dim": 50, "encoder_layers": 2, "max_source_positions": 31, "n_window": 15,
                           "num_mel_bins": 20},
    "minicpm_sound": {"audio_pool_step": 3, "audio_chunk_length": 0.3, "init_vision": False, "hidden_size": 36},
    "minicpm_vision": {"hidden_size": 36, "intermediate_size": 50, "num_attention_heads": 3, "patch_size": 4, "image_size": 40},
}


def draw_text(rng, family):
    heads = rng.choice([1, 2, 3, 4, 5, 6])
    kv_heads = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    head_dim = rng.choice([8, 10, 12, 16, 20, 24])
    layers = rng.randint(3, 5)
    out = {"hidden_size": heads * head_dim, "intermediate_size": rng.choice([50, 64, 96, 131]), "num_hidden_layers": layers,
           "num_attention_heads": heads, "num_key_value_heads": kv_heads, "rope_theta": rng.choice([10000.0, 12345.0, 500000.0, 1e6]),
           "rms_norm_eps": rng.choice([1e-5, 1e-6])}
    if family == "qwen2":
        out["max_window_layers"] = layers
    elif family == "qwen3":
        out["head_dim"] = head_dim + rng.choice([0, 4, 16])
        out["attention_bias"] = rng.random() < 0.5
    else:
        out["head_dim"] = head_dim
        if rng.random() < 0.5:                            # a head size of its own
            out["hidden_size"] = heads * rng.choice([6, 14, 22])
    if family != "llava_text":
        out["tie_word_embeddings"] = rng.random() < 0.5
        linear = {rng.choice(["type", "rope_type"]): "linear", "factor": rng.choice([2.0, 3.5])}
        llama3 = {**ODD["llama"]["rope_scaling"], "factor": rng.choice([2.0, 8.0])}
        out["rope_scaling"] = rng.choice([None, linear, llama3])
    return out


def draw_rope(rng):
    yarn = {rng.choice(["type", "rope_type"]): "yarn", "factor": rng.choice([2.0, 4.0]), "original_max_position_embeddings": rng.choice([32, 512])}
    for key, values in (("beta_fast", (8, 32.0)), ("beta_slow", (1, 0.25)), ("attention_factor", (0.9, 1.25)), ("truncate", (True, False))):
        if rng.random() < 0.5:
            yarn[key] = rng.choice(values)
    if rng.random() < 0.5:
        yarn.update(mscale=rng.choice([0.707, 1.0]), mscale_all_dim=rng.choice([0.5, 1.0]))
    return rng.choice([None, yarn, yarn, {rng.choice(["type", "rope_type"]): "dynamic", "factor": rng.choice([1.5, 2.0])}])


def draw_windows(rng, family):
    """A rope of any kind, and windows of all layers, of the last ones, or of those that layer_types names. None of one token: with a
    cache, transformers 5.23 then keeps every key (`keys[-window + 1:]`), and generates other tokens than without."""
    out = draw_text(rng, family)
    out["rope_scaling"], window, layers = draw_rope(rng), rng.choice([2, 5, 8, 13, 40]), out["num_hidden_layers"]
    if family == "mistral":
        return {**out, "sliding_window": rng.choice([window, window, None])}
    out.update(use_sliding_window=rng.random() < 0.8, sliding_window=window, max_window_layers=rng.randint(0, layers))
    if out["use_sliding_window"] and rng.random() < 0.5:
        out["layer_types"] = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    return out


def draw_vision(rng):
    heads, patch = rng.choice([1, 2, 3, 5]), rng.choice([4, 8, 14])
    return {"hidden_size": heads * rng.choice([8, 12, 20]), "intermediate_size": rng.choice([40, 77, 96]),
            "num_hidden_layers": rng.randint(2, 5), "num_attention_heads": heads, "patch_size": patch, "image_size": patch * rng.choice([3, 4, 5])}


def draw_window_vision(rng):
    heads, patch, depth = rng.choice([1, 2, 3, 5]), rng.choice([4, 8, 14]), rng.randint(2, 5)
    whole = sorted(rng.sample(range(depth), rng.randint(1, depth - 1)))
    return {"hidden_size": heads * rng.choice([8, 12, 20]), "intermediate_size": rng.choice([40, 77, 96]), "depth": depth, "num_heads": heads,
            "patch_size": patch, "spatial_patch_size": patch, "window_size": 2 * patch * rng.randint(1, 4), "fullatt_block_indexes": whole,
            "tokens_per_second": rng.choice([1, 2, 4, 25])}


def draw_mrope_text(rng):
    out = draw_text(rng, "qwen2")
    pairs = out["hidden_size"] // out["num_attention_heads"] // 2
    first, second = rng.randint(1, pairs - 2), 0
    second = rng.randint(1, pairs - first - 1)
    out.update(tie_word_embeddings=rng.random() < 0.5,
               rope_scaling={"type": rng.choice(["mrope", "default"]), "mrope_section": [first, second, pairs - first - second]})
    if rng.random() < 0.5:
        out.update(use_sliding_window=True, sliding_window=rng.choice([2, 5, 12]), max_window_layers=rng.randint(0, 2))
    return out


def draw_intern_vision(rng):
    heads, patch = rng.choice([1, 2, 3, 5]), rng.choice([4, 6, 8])
    edge = patch * rng.choice([2, 4, 6])
    return {"hidden_size": heads * rng.choice([8, 12, 20]), "intermediate_size": rng.choice([40, 77, 96]), "num_hidden_layers": rng.randint(2, 4),
            "num_attention_heads": heads, "patch_size": [patch, patch], "image_size": [edge, edge], "attention_bias": rng.random() < 0.7,
            "norm_type": rng.choice(["layer_norm", "rms_norm"]), "use_qk_norm": rng.random() < 0.5}


def draw_minicpm(rng):
    """Heads of the resampler are hidden // 128, so that the hidden size is at least as large."""
    hidden, heads = rng.choice([(128, 4), (132, 3), (192, 6), (256, 4), (264, 6), (384, 8)])
    return {"hidden_size": hidden, "intermediate_size": rng.choice([50, 64, 131]), "num_attention_heads": heads,
            "num_key_value_heads": rng.choice([k for k in range(1, heads + 1) if heads % k == 0]),
            "rope_theta": rng.choice([10000.0, 500000.0, 1e6]), "rms_norm_eps": rng.choice([1e-5, 1e-6]),
            "tie_word_embeddings": rng.random() < 0.5, "drop_vision_last_layer": rng.random() < 0.5, "query_num": rng.choice([1, 4, 9, 16]),
            "image_size": rng.choice([28, 40, 56])}


def draw_minicpm_vision(rng):
    heads, patch = rng.choice([1, 2, 3, 4]), rng.choice([4, 6, 8, 14])
    hidden = heads * rng.choice([8, 12, 32]) if rng.random() < 0.8 else draw_minicpm(rng)["hidden_size"]
    return {"hidden_size": hidden, "intermediate_size": rng.choice([40, 77, 96]), "num_attention_heads": heads if hidden % heads == 0 else 1,
            "num_hidden_layers": rng.randint(2, 4), "patch_size": patch, "image_size": patch * rng.choice([5, 10, 32, 70])}


def draw_omnilmm(rng, patch):
    hidden, heads = rng.choice([(128, 4), (132, 3), (256, 4), (264, 6)])
    return {"hidden_size": hidden, "intermediate_size": rng.choice([50, 64, 131]), "num_attention_heads": heads,
            "num_key_value_heads": rng.choice([k for k in range(1, heads + 1) if heads % k == 0]), "num_query": rng.choice([1, 4, 9, 16]),
            "rope_theta": rng.choice([10000.0, 1e6]), "tie_word_embeddings": rng.random() < 0.5, "image_size": patch * rng.randint(1, 7),
            "sliding_window": rng.choice([5, 17, None])}


def draw_omnilmm_vision(rng):
    heads, patch = rng.choice([1, 2, 3]), rng.choice([4, 6, 8])
    hidden = heads * rng.choice([8, 12, 32]) if rng.random() < 0.8 else 132
    return {"hidden_size": hidden, "intermediate_size": rng.choice([40, 77, 96]), "num_attention_heads": heads,
            "num_hidden_layers": rng.randint(2, 4), "patch_size": patch, "image_size": patch * rng.randint(1, 7)}


def draw_minicpm_audio(rng):
    heads = rng.choice([1, 2, 3, 4])
    hidden = heads * rng.choice([8, 12, 16])
    return {"d_model": hidden, "encoder_attention_heads": heads, "encoder_ffn_dim": 4 * hidden, "encoder_layers": rng.randint(1, 3),
            "max_source_positions": rng.choice([77, 100, 150])}


def draw_minicpm_sound(rng):
    return {"audio_pool_step": rng.choice([1, 2, 3, 5]), "audio_chunk_length": rng.choice([-1, 0.1, 0.5, 1.0]), "chunk_input": rng.random() < 0.6}


def draw_omni_audio(rng):
    heads = rng.choice([1, 2, 3, 5])
    window = rng.choice([7, 20, 33, 100])
    return {"d_model": heads * rng.choice([8, 12, 16]), "encoder_attention_heads": heads, "encoder_ffn_dim": rng.choice([40, 77, 96]),
            "encoder_layers": rng.randint(1, 3), "n_window": window, "max_source_positions": window + rng.choice([0, 1, 60]),
            "num_mel_bins": rng.choice([20, 80, 128])}


def sizes(kind, seed, part):
    """Overrides of the config for `part` (qwen2, llama, llava, llava_text, llava_vision, qwen2_5_vl, internvl_vision, minicpm, …)."""
    if kind == "default":
        return {}
    if kind == "odd":
        return dict(ODD.get("internvl_text" if part == "internlm2_text" else part, {}))
    rng = random.Random(f"{seed}/{part}")
    if part == "llava":
        return {"vision_feature_layer": rng.choice([-1, -2]), "vision_feature_select_strategy": rng.choice(["default", "full"])}
    if part == "llava_vision":
        return draw_vision(rng)
    if part == "qwen2_5_vl_vision":
        return draw_window_vision(rng)
    if part == "internvl_vision":
        return draw_intern_vision(rng)
    if part == "internvl":
        return {"vision_feature_layer": rng.choice([-1, -2]), "tie_word_embeddings": rng.random() < 0.5}
    if part == "internlm2_text":
        return {k: v for k, v in draw_text(random.Random(f"{seed}/internvl_text"), "qwen2").items() if k != "tie_word_embeddings"}
    if part == "internvl_text":
        qwen2, qwen3 = draw_text(rng, "qwen2"), {"model_type": "qwen3", **draw_windows(rng, "qwen3")}
        return {k: v for k, v in rng.choice([qwen2, qwen3]).items() if k != "tie_word_embeddings"}
    if part == "llava_text":
        return {**draw_text(rng, part), **rng.choice([{}, {"model_type": "mistral", "sliding_window": rng.choice([3, 7, 20])}])}
    if part == "qwen2_5_vl":
        return draw_mrope_text(rng)
    if part == "omnilmm":
        return draw_omnilmm(rng, sizes(kind, seed, "omnilmm_vision")["patch_size"])
    if part == "omnilmm_vision":
        return draw_omnilmm_vision(rng)
    if part == "minicpm":
        return draw_minicpm(rng)
    if part == "minicpm_vision":
        return draw_minicpm_vision(rng)
    if part == "minicpm_audio":
        return draw_minicpm_audio(rng)
    if part == "minicpm_sound":
        return draw_minicpm_sound(rng)
    if part == "qwen2_5_omni":
        return {"seconds_per_chunk": rng.choice([1, 2]), "position_id_per_seconds": rng.choice([5, 10, 25])}
    if part == "qwen2_5_omni_audio":
        return draw_omni_audio(rng)
    if part in ("mistral", "qwen3"):
        return draw_windows(rng, part)
    return draw_text(rng, part) if part in ("qwen2", "llama") else {}
