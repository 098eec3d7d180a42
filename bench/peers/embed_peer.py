"""Hugging Face transformers: mean-pooled last hidden states of prompts of different lengths, one process.

  embed_peer.py --model DIR --data DIR [--dtype fp32] [--batches 32] [--prompts 64] [--skip 0] [--save FILE.json]
  embed_peer.py --family internvl …       rows.jsonl of --data, with media, read and prepared within the measured time

Right padding; the mean over a row's own tokens, in float32, of the states after the final norm. tokens_per_s counts real
tokens. One batch runs first, for warmth.
"""
import argparse
import json
import os
import time

a = argparse.ArgumentParser()
a.add_argument("--model", required=True)
a.add_argument("--data", required=True)
a.add_argument("--dtype", choices=["bf16", "fp32"], default="fp32")
a.add_argument("--batches", default="32")
a.add_argument("--prompts", type=int, default=64)
a.add_argument("--skip", type=int, default=0)
a.add_argument("--save")
a.add_argument("--family")
a = a.parse_args()
import torch  # noqa: E402
from transformers import AutoModel  # noqa: E402

from peer_util import emit, process_start, rss  # noqa: E402

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
if a.family:
    from media_peer import Rows, model_class
    source = Rows(a.data)
    prompts = list(range(a.skip, a.skip + a.prompts))
    model = model_class(a.family).from_pretrained(os.path.join(a.data, "model"), attn_implementation="sdpa", dtype=dtype).eval()
    model.lm_head = torch.nn.Identity()  # nobody asks for logits
else:
    model = AutoModel.from_pretrained(a.model, attn_implementation="sdpa", dtype=dtype).eval()
    with open(os.path.join(a.data, "prompts.jsonl")) as f:
        prompts = [json.loads(line)["ids"] for line in f][a.skip:a.skip + a.prompts]
real = 0


def batch_of(rows):
    if a.family:
        return source.batch(rows, answered=False)
    n = max(map(len, rows))
    return {"input_ids": torch.tensor([r + [0] * (n - len(r)) for r in rows]),
            "attention_mask": torch.tensor([[1] * len(r) + [0] * (n - len(r)) for r in rows])}


@torch.inference_mode()
def embed(rows):
    global real
    inputs = batch_of(rows)
    out = model(**inputs, use_cache=False)
    h = (out.logits if a.family else out.last_hidden_state).float()
    m = inputs["attention_mask"].unsqueeze(-1).float()
    real += int(m.sum())
    return (h * m).sum(1) / m.sum(1)


for b in map(int, a.batches.split(",")):
    embed(prompts[:b])
    first = time.time() - process_start()
    real, t, c = 0, time.perf_counter(), time.process_time()
    out = [v for k in range(0, len(prompts), b) for v in embed(prompts[k:k + b]).tolist()]
    t, c = time.perf_counter() - t, time.process_time() - c
    emit({"peer": "transformers", "task": "embed", "batch": b, "tokens": real, "seconds": t, "cpu_s": c,
          "tokens_per_s": real / t, "first_result_s": first, "peak_rss_mib": rss()["peak_rss"] >> 20}, None)
if a.save:
    with open(a.save, "w") as f:
        json.dump(out, f)
