"""Hugging Face transformers: greedy generation with a key-value cache, one process.

  generate_peer.py --model DIR --data DIR [--dtype fp32] [--batch 32] [--skip 0] [--new 64] [--save FILE.json]

Left padding; the end-of-text token does not stop, so that each row gets --new tokens. --save: each row's text, and what of
it came before the two best tokens first lay within 1e-3 (null: they never did).
"""
import argparse
import json
import os
import time

a = argparse.ArgumentParser()
a.add_argument("--model", required=True)
a.add_argument("--data", required=True)
a.add_argument("--dtype", choices=["bf16", "fp32"], default="fp32")
a.add_argument("--batch", type=int, default=32)
a.add_argument("--skip", type=int, default=0)
a.add_argument("--new", type=int, default=64)
a.add_argument("--save")
a = a.parse_args()
import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from peer_util import emit, process_start, rss  # noqa: E402

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
model = AutoModelForCausalLM.from_pretrained(a.model, attn_implementation="sdpa",
                                             dtype=torch.bfloat16 if a.dtype == "bf16" else torch.float32).eval()
with open(os.path.join(a.data, "prompts.jsonl")) as f:
    prompts = [json.loads(line)["ids"] for line in f][a.skip:a.skip + a.batch]
n = max(map(len, prompts))
ids = torch.tensor([[0] * (n - len(p)) + p for p in prompts])
mask = torch.tensor([[0] * (n - len(p)) + [1] * len(p) for p in prompts])


def generate(new, **more):
    return model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new, eos_token_id=-1,
                          pad_token_id=0, use_cache=True, **more)


def run(new):
    t, c = time.perf_counter(), time.process_time()
    generate(new)
    return time.perf_counter() - t, time.process_time() - c


run(2)
first = time.time() - process_start()
seconds, cpu = run(a.new)
emit({"peer": "transformers", "task": "generate", "batch": len(prompts), "new_tokens": len(prompts) * a.new,
      "seconds": seconds, "cpu_s": cpu, "process_to_first_result_s": first, "peak_rss_mib": rss()["peak_rss"] >> 20}, None)
if a.save:  # not timed
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    done = generate(a.new, output_logits=True, return_dict_in_generate=True)
    tokens = done.sequences[:, n:].tolist()
    best = torch.stack(done.logits, 1).float().topk(2).values  # [rows, new, 2]
    near = (best[..., 0] - best[..., 1] < 1e-3).int()
    rows = []
    for i, row in enumerate(tokens):
        tie = int(near[i].argmax()) if near[i].any() else None
        text = lambda part: tokenizer.decode(part, skip_special_tokens=True)  # noqa: E731
        rows.append({"text": text(row), "sure_text": None if tie is None else text(row[:tie])})
    with open(a.save, "w") as f:
        json.dump(rows, f)
