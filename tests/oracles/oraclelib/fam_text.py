"""Families qwen2 (fp32 on disk), llama (Llama-3 rope scaling), qwen3 and mistral (a window) (these bf16 on disk)."""
import torch

from . import templates, tok
from .sizes import sizes
from .common import (Recorder, cases_from_reference, dtype_spread, fresh_dir, init_model, load_reference, read_json,
                     record_cases, write_json, write_v5_view, write_weights, generator)
from .running import greedy, run_case

PROMPTS = ["The Python language reference describes", "def f(x):\n    return x * 2\n", "你好，世界！今天", "Licensed under the terms of"]


def hf_classes(family):
    import transformers as tf
    return {"qwen2": tf.Qwen2ForCausalLM, "llama": tf.LlamaForCausalLM, "qwen3": tf.Qwen3ForCausalLM, "mistral": tf.MistralForCausalLM}[family]


def config_for(family, vocab, ids):
    common = {"vocab_size": vocab, "hidden_act": "silu", "initializer_range": 0.02, "use_cache": True,
              "attention_dropout": 0.0, "transformers_version": "4.46.0"}
    if family == "qwen2":
        return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 160,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
                "max_window_layers": 3, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 2048,
                "tie_word_embeddings": True, "use_sliding_window": False, "bos_token_id": ids["<|endoftext|>"],
                "eos_token_id": ids["<|im_end|>"], "torch_dtype": "float32", **common}
    if family == "llama":
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 176,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1,
                "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
                "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                 "original_max_position_embeddings": 64, "rope_type": "llama3"},
                "tie_word_embeddings": False, "bos_token_id": ids["<|begin_of_text|>"],
                "eos_token_id": [ids["<|end_of_text|>"], ids["<|eom_id|>"], ids["<|eot_id|>"]],
                "torch_dtype": "bfloat16", **common}
    if family == "mistral":
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 64, "intermediate_size": 176,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
                "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 9, "tie_word_embeddings": False,
                "bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"], "torch_dtype": "bfloat16", **common}
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 160,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "attention_bias": False,
            "max_position_embeddings": 2048, "max_window_layers": 3, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
            "rope_scaling": None, "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": True,
            "bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"], "torch_dtype": "bfloat16", **common}


def write_family_tokenizer(ctx, family, ckpt):
    if family == "llama":
        t = ctx.toks.llama3()
        cfg = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>",
               "clean_up_tokenization_spaces": True, "model_input_names": ["input_ids", "attention_mask"],
               "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": templates.LLAMA3}
        tok.save_tokenizer(t, ckpt, cfg, bpe_files=False,
                           special_map={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})
    elif family == "mistral":
        t = tok.byte_tokenizer(*ctx.toks.base("qwen2"), tok.QWEN2_REGEX, False, False, ["<s>", "</s>"], ["[INST]", "[/INST]"], bos="<s>")
        cfg = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "clean_up_tokenization_spaces": False,
               "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": templates.MISTRAL}
        tok.save_tokenizer(t, ckpt, cfg, bpe_files=False, special_map={"bos_token": "<s>", "eos_token": "</s>"})
    else:
        plain = tok.QWEN3_PLAIN if family == "qwen3" else tok.QWEN25_PLAIN
        t = ctx.toks.qwen(tok.QWEN25, plain)
        template = templates.QWEN3 if family == "qwen3" else templates.QWEN25
        tok.save_tokenizer(t, ckpt, tok.qwen_tokenizer_config(tok.QWEN25[1:], template),
                           special_map={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    return t


def load(ckpt, family=None, dtype=torch.float32, attn="eager"):
    family = family or read_json(ckpt / "config.json")["model_type"]
    m = hf_classes(family).from_pretrained(ckpt, dtype=dtype, attn_implementation=attn)
    return m.eval()


def grad_params(model):
    p = dict(model.named_parameters())
    names = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.bias",
             "model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight",
             "model.layers.2.input_layernorm.weight", "model.layers.0.self_attn.q_norm.weight", "model.norm.weight",
             "lm_head.weight"]
    return {n: p[n] for n in names if n in p}


def compute(ckpt, cases):
    model = load(ckpt)
    out = {}
    for name, ins in cases.items():
        if name.startswith("gen"):
            ids, margin = greedy(model, ins)
            out[name] = {"generated": ids, "generated_margin": margin}
        else:
            out[name] = run_case(model, ins, final_norm=model.model.norm, grads=grad_params(model),
                                 hooks={"layer0_attn_out": model.model.layers[0].self_attn,
                                        "layer0_mlp_out": model.model.layers[0].mlp})
    return out


def pad_batch(seqs, pad, side):
    n = max(map(len, seqs))
    ids, mask = [], []
    for s in seqs:
        k = n - len(s)
        ids.append(([pad] * k + s) if side == "left" else (s + [pad] * k))
        mask.append(([0] * k + [1] * len(s)) if side == "left" else ([1] * len(s) + [0] * k))
    return torch.tensor(ids), torch.tensor(mask)


def make_cases(t, family, pad):
    enc = [t.encode(p).ids for p in PROMPTS]
    single = torch.tensor([enc[0] + enc[2]])
    ids, mask = pad_batch(enc, pad, "right")
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :2] = -100                                  # a "prompt" that is not trained on
    lids, lmask = pad_batch(enc[:3], pad, "left")
    cases = {
        "single": {"input_ids": single, "attention_mask": torch.ones_like(single)},
        "batch": {"input_ids": ids, "attention_mask": mask, "labels": labels},
        "gen_single": {"input_ids": single, "attention_mask": torch.ones_like(single)},
        "gen_left": {"input_ids": lids, "attention_mask": lmask},
    }
    if family in ("llama", "mistral"):                    # beyond original_max_position_embeddings, and many windows long
        g = generator(5, "long")
        long_ids = torch.randint(20, t.get_vocab_size() - 20, (1, 90 if family == "llama" else 150), generator=g)
        cases["long"] = {"input_ids": long_ids, "attention_mask": torch.ones_like(long_ids)}
    return cases


def make(ctx, family):
    folder = fresh_dir(ctx.out / family)
    ckpt = folder / "checkpoint"
    ckpt.mkdir()
    t = write_family_tokenizer(ctx, family, ckpt)
    ids = t.get_vocab(True)
    cfg = {**config_for(family, tok.padded_vocab(t), ids), **sizes(ctx.sizes, ctx.seed, family)}
    write_json(ckpt / "config.json", cfg)
    eos = cfg["eos_token_id"]
    pad = ids[{"llama": "<|finetune_right_pad_id|>", "mistral": "</s>"}.get(family, "<|endoftext|>")]
    write_json(ckpt / "generation_config.json",
               {"bos_token_id": cfg["bos_token_id"], "eos_token_id": eos, "pad_token_id": pad, "do_sample": True,
                "temperature": 0.7, "top_p": 0.8, "transformers_version": "4.46.0"})
    from transformers import AutoConfig
    model = hf_classes(family)(AutoConfig.from_pretrained(ckpt))
    disk = torch.float32 if family == "qwen2" else torch.bfloat16
    init_model(model, ctx.seed, disk)
    state = {k: v for k, v in model.state_dict().items() if not (cfg["tie_word_embeddings"] and k == "lm_head.weight")}
    write_weights(ckpt, state, disk)
    write_v5_view(model, folder)
    rec = Recorder(family, ctx.seed)
    cases = make_cases(t, family, pad)
    record_cases(rec, cases, compute(ckpt, cases),
                 {"layer0_attn_out": "output of layer 0 self-attention (after o_proj)", "layer0_mlp_out": "output of layer 0 MLP"})
    rec.meta["prompts"] = PROMPTS
    rec.meta["spread"] = dtype_spread(lambda d, a: load(ckpt, family, d, a),
                                      {k: v for k, v in cases.items() if not k.startswith("gen")})
    rec.save(folder)


def verify(folder):
    from .common import compare_outputs
    stored, meta = load_reference(folder)
    return compare_outputs(stored, compute(folder / "checkpoint", cases_from_reference(stored)), dropped=meta.get("dropped", ()))
