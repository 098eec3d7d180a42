"""The kinds of adapters: what is asked of peft for each, and how their tensors are named by older writers."""

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
TOWER_LINEAR = {"llava": r"(q_proj|k_proj|v_proj|out_proj|fc1|fc2)", "qwen2_5_vl": r"(qkv|proj|gate_proj|up_proj|down_proj)",
                "internvl": r"(q_proj|k_proj|v_proj|projection_layer|fc1|fc2)"}
TOWER_LAYERS = {"llava": "encoder.layers", "qwen2_5_vl": "blocks", "internvl": "encoder.layer"}
TRAINED = ("r4", "dora", "rslora", "loraplus", "bias_all", "save_projector", "save_embed_head", "all", "lora_llm", "uneven", "embedding", "head")
MERGED_BF16 = ("r4", "dora", "all", "lora_llm", "save_embed_head")
OTHER_NAMES = ("r4", "all")                               # stored under older key shapes as well
LORAPLUS_RATIO = 16


def kinds(family, layers, tied):
    """{kind: arguments of LoraConfig} for a family of lora_models.py with that many decoder layers. Beside them `trained_whole`: modules
    that are trained whole without peft's knowledge, as ms-swift's lora_llm does."""
    text = family.tower is None
    language = family.language.replace(".", r"\.")

    def inside(names):
        """Of the language model alone: a list, or where towers have modules of the same name one regex over whole names."""
        return list(names) if text else rf"^({language}(?=\.).*\.({'|'.join(names)}))$"

    def lora(names, r=4, alpha=8, **more):
        return {"target_modules": inside(names) if isinstance(names, (list, tuple)) else names, "r": r, "lora_alpha": alpha, **more}

    last = layers - 1
    no_tower = {} if text else {"exclude_modules": rf".*{family.tower.rsplit('.', 1)[1]}\..*"}
    out = {
        "r1": lora(["q_proj", "v_proj"], 1, 3),
        "r4": lora(ATTENTION),
        "r7": {"target_modules": LINEAR, "r": 7, "lora_alpha": 16},       # suffixes: of a tower too, where it has such names
        "rslora": lora(LINEAR, use_rslora=True),
        "dora": lora(LINEAR, use_dora=True),
        "loraplus": lora(ATTENTION + ["down_proj"]),
        "rank_pattern": lora(LINEAR, rank_pattern={"v_proj": 6, rf"layers\.{last}\.self_attn\.q_proj": 2, r"mlp\.(gate|up)_proj": 3},
                             alpha_pattern={"v_proj": 5, f"{family.language}.layers.0.mlp.down_proj": 20}),
        "q_only": {"target_modules": ["q_proj"], "r": 4, "lora_alpha": 8, "layers_to_transform": sorted({0, last}), "layers_pattern": "layers", **no_tower},
        "uneven": lora(["q_proj", "k_proj", "v_proj"], rank_pattern={"q_proj": 3, "k_proj": 5, "v_proj": 2}),
        "mlp": lora(["gate_proj", "down_proj"]),
        "bias_all": lora(["q_proj", "v_proj"], bias="all"),
        "bias_lora_only": lora(["q_proj", "v_proj"], bias="lora_only"),
        "lora_bias": lora(["q_proj", "k_proj", "v_proj"], lora_bias=True),
        "save_embed_head": lora(["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"]),
        "save_norm": lora(["q_proj", "v_proj"], modules_to_save=[f"{family.language}.norm"]),
        "save_norms": lora(["q_proj", "v_proj"], modules_to_save=["norm"]),  # a suffix without a dot before it: every name that ends so
        "embedding": {"target_modules": ["embed_tokens", "q_proj"], "r": 4, "lora_alpha": 8, **no_tower},
        "dora_embedding": {"target_modules": ["embed_tokens", "k_proj"], "r": 4, "lora_alpha": 8, "use_dora": True, **no_tower},
        "head": {"target_modules": ["lm_head"], "r": 4, "lora_alpha": 8},
        "all": {"target_modules": "all-linear", "r": 4, "lora_alpha": 8},
        "pissa": lora(ATTENTION, init_lora_weights="pissa"),              # these two take from the base what its decomposition gives the adapter:
        "olora": lora(ATTENTION, init_lora_weights="olora"),              # a reader does it again, on the base as released
    }
    if tied:                                              # peft gives the head what the embedding has
        out["tied_save"] = lora(["q_proj", "v_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)
        out["tied_targets"] = {**out["embedding"], "ensure_weight_tying": True}
    if not text:
        tower, patch = family.tower.replace(".", r"\."), family.patch.rsplit(".", 1)[1]
        projector = family.projector.replace(".", r"\.")
        out["save_projector"] = lora(["q_proj", "v_proj"], modules_to_save=[family.projector.rsplit(".", 1)[1]])
        out["tower"] = lora(rf"{tower}\.{TOWER_LAYERS[family.name]}\..*\.{TOWER_LINEAR[family.name]}".replace("encoder.", r"encoder\."))
        out["projector"] = lora(rf"{projector}\.(linear_[12]|mlp\.[02])")
        out["patch"] = {"target_modules": [patch if patch != "proj" else "patch_embed.proj"], "r": 4, "lora_alpha": 8}
        out["dora_all"] = {**out["all"], "use_dora": True}
        out["dora_patch"] = {**out["patch"], "use_dora": True}
        out["lora_llm"] = {**lora(LINEAR), "trained_whole": [family.tower, family.projector]}
    return out


def old_name(family, key):
    """The key as transformers before 4.52 made it: the names of the released checkpoint."""
    head = "base_model.model."
    return head + family.old(key[len(head):])


def text_name(family, key):
    """The key as if the language model had been tuned alone; None for what it has not."""
    head, language = "base_model.model.", family.language + "."
    inner = key[len(head):]
    if inner.startswith("lm_head."):
        return key
    return head + "model." + inner[len(language):] if inner.startswith(language) else None


def renamed_targets(family, targets, shape):
    """target_modules of the config that goes with old or text-only keys."""
    if isinstance(targets, str):
        prefix = {"old": family.old(family.language + ".x").split(".")[0], "text": "model"}[shape]
        return targets.replace(family.language.replace(".", r"\."), prefix.replace(".", r"\."))
    return targets
