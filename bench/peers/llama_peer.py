"""llama.cpp: prompts read and greedy answers, one process.

  llama_peer.py --model DIR --data DIR --dtype fp32 [--answers 32] [--new 64] [--prompt 8] [--save FILE.json]

The checkpoint is written as GGUF beside the data once, with its numbers as they are (norms and biases in float32, as
llama.cpp wants them); keys and values are kept in the same dtype. --new 0 reads --answers prompts of --prompt tokens, one
after the other; else the prompts are answered side by side. --save: tokens of each answer.
"""
import argparse
import ctypes
import json
import os
import pathlib
import time

a = argparse.ArgumentParser()
a.add_argument("--model", type=pathlib.Path, required=True)
a.add_argument("--data", type=pathlib.Path, required=True)
a.add_argument("--dtype", choices=["bf16", "fp32"], default="fp32")
a.add_argument("--answers", type=int, default=32)
a.add_argument("--new", type=int, default=64)
a.add_argument("--prompt", type=int, default=8)
a.add_argument("--threads", type=int, default=1)
a.add_argument("--save")
a = a.parse_args()
import gguf  # noqa: E402
import llama_cpp as llama  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from peer_util import emit, rss, token  # noqa: E402

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


def name_of(name):
    stem, kind = name.rsplit(".", 1)
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if stem in whole:
        return f"{whole[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def write_gguf(path):
    config = json.loads((a.model / "config.json").read_text())
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    for name, tensor in load_file(a.model / "model.safetensors").items():
        numbers = tensor.float().numpy()
        if a.dtype == "bf16" and numbers.ndim == 2:
            kind = gguf.GGMLQuantizationType.BF16
            out.add_tensor(name_of(name), gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            out.add_tensor(name_of(name), numbers)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


path = a.data / f"small-{a.dtype}.gguf"
if not path.exists():
    write_gguf(path)
silent = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(silent, ctypes.c_void_p(0))
llama.llama_backend_init()
model_params = llama.llama_model_default_params()
model_params.n_gpu_layers = 0
model = llama.llama_model_load_from_file(str(path).encode(), model_params)
vocab = json.loads((a.model / "config.json").read_text())["vocab_size"]
params = llama.llama_context_default_params()
side_by_side = a.answers if a.new else 1
params.n_ctx = side_by_side * (a.prompt + a.new)
params.n_batch = params.n_ubatch = max(512, a.prompt)
params.n_seq_max = side_by_side
params.n_threads = params.n_threads_batch = a.threads
params.type_k = params.type_v = {"fp32": 0, "bf16": 30}[a.dtype]  # ggml's F32 and BF16
context = llama.llama_init_from_model(model, params)
assert context, "llama.cpp made no context"
memory = llama.llama_get_memory(context)
prompts = [[token(99, 1000 * i + t, vocab - 8) for t in range(a.prompt)] for i in range(a.answers)]


def decode(entries):
    """(token, place, row, wants logits) of each."""
    batch = llama.llama_batch_init(len(entries), 0, 1)
    batch.n_tokens = len(entries)
    for i, (word, place, row, wants) in enumerate(entries):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = word, place, 1, row, wants
    assert llama.llama_decode(context, batch) == 0
    best = [int(np.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (vocab,)).argmax())
            for i, entry in enumerate(entries) if entry[3]]
    llama.llama_batch_free(batch)
    return best


def read_prompts():
    """Each alone, its last token's logits wanted."""
    for prompt in prompts:
        llama.llama_memory_clear(memory, True)
        decode([(word, t, 0, t + 1 == a.prompt) for t, word in enumerate(prompt)])


def answer(new):
    llama.llama_memory_clear(memory, True)
    # As many prompts at a time as a batch holds.
    together = max(1, params.n_batch // a.prompt)
    said = []
    for first in range(0, a.answers, together):
        said += [[word] for word in decode([(word, t, row, t + 1 == a.prompt)
                                            for row in range(first, min(first + together, a.answers))
                                            for t, word in enumerate(prompts[row])])]
    for step in range(1, new):
        for row, word in enumerate(decode([(words[-1], a.prompt + step - 1, row, True) for row, words in enumerate(said)])):
            said[row].append(word)
    return said


run = (lambda: answer(a.new)) if a.new else read_prompts
answer(2) if a.new else read_prompts()
begun, cpu = time.perf_counter(), time.process_time()
said = run()
seconds = time.perf_counter() - begun
emit({"peer": "llama.cpp", "answers": a.answers, "new_tokens": a.answers * a.new, "prompt_tokens": a.answers * a.prompt,
      "seconds": seconds, "cpu_s": time.process_time() - cpu, "peak_rss_mib": rss()["peak_rss"] >> 20}, None)
if a.save:
    pathlib.Path(a.save).write_text(json.dumps(said))
os._exit(0)  # what it keeps goes with the process
