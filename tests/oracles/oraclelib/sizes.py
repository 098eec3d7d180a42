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
    return {**out, "tie_word_embeddings": rng.random() < 0.5,
            "rope_scaling": {"type": rng.choice(["mrope", "default"]), "mrope_section": [first, second, pairs - first - second]}}


def draw_intern_vision(rng):
    heads, patch = rng.choice([1, 2, 3, 5]), rng.choice([4, 6, 8])
    edge = patch * rng.choice([2, 4, 6])
    return {"hidden_size": heads * rng.choice([8, 12, 20]), "intermediate_size": rng.choice([40, 77, 96]), "num_hidden_layers": rng.randint(2, 4),
            "num_attention_heads": heads, "patch_size": [patch, patch], "image_size": [edge, edge], "attention_bias": rng.random() < 0.7,
            "norm_type": rng.choice(["layer_norm", "rms_norm"]), "use_qk_norm": rng.random() < 0.5}


def sizes(kind, seed, part):
    """Overrides of the config for `part` (qwen2, llama, llava, llava_text, llava_vision, qwen2_5_vl, internvl_vision, …)."""
    if kind == "default":
        return {}
    if kind == "odd":
        return dict(ODD.get(part, {}))
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
    if part == "internvl_text":
        return {k: v for k, v in draw_text(rng, "qwen2").items() if k != "tie_word_embeddings"}
    if part == "qwen2_5_vl":
        return draw_mrope_text(rng)
    return draw_text(rng, part) if part in ("qwen2", "llama", "llava_text") else {}
