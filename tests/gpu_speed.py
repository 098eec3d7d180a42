"""How fast the GPU trains: a model of Qwen2.5-7B's shapes with random weights, tokens a second, the part of what the GPU can do
at most, and the peak of memory beside the plan; transformers on the same rows where Python has it.

Weights: a block of random bfloat16 numbers, again and again, since time and memory do not ask which numbers they are.
"""
import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 1 << 20  # numbers drawn
# Dense bfloat16 products with sums in float32, as their makers state them, in 10^12 a second.
PEAKS = {"H200": 989.4, "H100 PCIe": 756.5, "H100": 989.4, "A100": 311.8, "L40S": 362.0, "B200": 2250.0}
LORA_RANK = 16
WARMUP = 2  # steps whose time does not count


def shapes(config):
    """name -> shape of a Qwen2 checkpoint's tensors."""
    d, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = d // config["num_attention_heads"] * config["num_key_value_heads"]
    of_layer = {"input_layernorm.weight": [d], "post_attention_layernorm.weight": [d], "self_attn.o_proj.weight": [d, d],
                "mlp.gate_proj.weight": [inner, d], "mlp.up_proj.weight": [inner, d], "mlp.down_proj.weight": [d, inner]}
    for name, out in (("q", d), ("k", kv), ("v", kv)):
        of_layer |= {f"self_attn.{name}_proj.weight": [out, d], f"self_attn.{name}_proj.bias": [out]}
    layers = {f"model.layers.{i}.{name}": shape for i in range(config["num_hidden_layers"]) for name, shape in of_layer.items()}
    head = {} if config.get("tie_word_embeddings") else {"lm_head.weight": [vocab, d]}
    return {"model.embed_tokens.weight": [vocab, d], **layers, "model.norm.weight": [d], **head}


def numel(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write_model(folder, config, tokenizer_of):
    """A checkpoint of the config's shapes; what lies beside the weights is that of `tokenizer_of`."""
    shutil.copytree(tokenizer_of, folder, ignore=shutil.ignore_patterns("*.safetensors*", "config.json"))
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
    draw = random.Random(7)
    block = b"".join(struct.pack("<f", draw.gauss(0, 0.02))[2:] for _ in range(BLOCK))
    ones = struct.pack("<f", 1.0)[2:]
    header, offset, all_shapes = {"__metadata__": {"format": "pt"}}, 0, shapes(config)
    for name, shape in all_shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * numel(shape)]}
        offset += 2 * numel(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in all_shapes.items():
            left, source = 2 * numel(shape), ones * numel(shape) if name.endswith("norm.weight") else block
            while left > 0:
                left -= out.write(source[:left])
    return folder


def write_rows(path, vocab, tokens, count):
    draw = random.Random(11)
    with open(path, "w") as out:
        for _ in range(count):
            ids = [draw.randrange(vocab) for _ in range(tokens)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return path


def flops_of_token(config, tokens, trained=True):
    """Forward and backward, what recompute does again left out: 6 a weight that is multiplied with, 4 of one that does not learn
    itself, and causal attention's 6 a layer, a number of the model's width and a token of the row."""
    every = shapes(config)
    weights = sum(numel(shape) for name, shape in every.items() if len(shape) > 1 and name != "model.embed_tokens.weight")
    if config.get("tie_word_embeddings"):
        weights += numel(every["model.embed_tokens.weight"])
    return (6 if trained else 4) * weights + 6 * config["num_hidden_layers"] * config["hidden_size"] * tokens


def most_flops(gpu_name):
    """Of the GPU, a second; None for one that is not in the table."""
    return next((peak * 1e12 for name, peak in PEAKS.items() if name in gpu_name), None)


def figures(seconds_per_step, tokens, config, gpu_name, trained=True):
    seconds = statistics.median(seconds_per_step[WARMUP:] or seconds_per_step)
    speed, most = tokens / seconds, most_flops(gpu_name)
    found = {"tokens_per_second": round(speed, 1), "seconds_per_step": round(seconds, 4)}
    if most:
        found["mfu"] = round(speed * flops_of_token(config, tokens, trained) / most, 4)
    return found


def trained_by_us(train, model, rows, config, tokens, steps, gpu_name, flags):
    """One run of lockstep sft; `train(model, rows, steps, **flags)` gives its folder, or None when memory did not suffice."""
    out = train(model, rows, steps, **{"torch_dtype": "bfloat16", "gradient_checkpointing": "true", "per_device_train_batch_size": 1, **flags})
    if out is None:
        return None
    records = [json.loads(line) for line in (out / "logging.jsonl").read_text().splitlines()]
    found = figures([r["train_speed(s/it)"] for r in records if "train_speed(s/it)" in r], tokens, config, gpu_name, "tuner_type" not in flags)
    memory = json.loads((out / "memory.json").read_text())
    planned, peak = memory["predicted"]["devices"][0]["peak"], memory["ranks"][0]["since_start"]["devices"][0]["peak"]
    return {**found, "peak_bytes": peak, "planned_bytes": planned, "peak_over_plan": round(peak / planned - 1, 4), "flags": flags}


def of_transformers(python, model, rows, tokens, steps, config, gpu_name, device, lora_rank=0):
    """The same rows by transformers, which keeps weights and moments in bfloat16 alone, or with peft's adapters; None where
    these are not installed."""
    peer = Path(__file__).resolve().parent / "gpu_peer.py"
    done = subprocess.run([python, peer, model, rows, str(steps), device, str(lora_rank)], capture_output=True, text=True)
    if done.returncode == 3:
        return None
    if done.returncode != 0:
        return {"failed": done.stderr[-1000:]}
    found = json.loads(done.stdout.splitlines()[-1])
    return {**figures(found["seconds"], tokens, config, gpu_name, not lora_rank), "peak_bytes": found["peak_bytes"]}


def measure(train, folder, tokenizer_of, config, tokens, steps, gpu_name, device, python=sys.executable):
    """All of it, by case. `tokenizer_of`: a folder of the same family, whose tokenizer serves."""
    model = write_model(folder / "speed model", config, tokenizer_of)
    rows = write_rows(folder / "speed rows.jsonl", config["vocab_size"], tokens, steps)
    cases = {"full": {}, "full, optimizer offloaded": {"offload": "optimizer"}}
    found = {}
    for name, flags in cases.items():
        one = trained_by_us(train, model, rows, config, tokens, steps, gpu_name, flags)
        if one is not None:
            found[name] = one
            break
    if not found:
        found["full"] = {"failed": "not enough memory, the optimizer offloaded or not"}
    lora = {"tuner_type": "lora", "lora_rank": LORA_RANK, "target_modules": "all-linear", "lora_dropout": 0}
    found["LoRA"] = trained_by_us(train, model, rows, config, tokens, steps, gpu_name, lora) or {"failed": "not enough memory"}
    for name, flags in {**cases, "LoRA": lora}.items():
        if "failed" in found.get(name, {"failed": ""}):
            continue
        as_needed = {**flags, "gradient_checkpointing": "auto", "memory_fraction": 0.97}
        one = trained_by_us(train, model, rows, config, tokens, steps, gpu_name, as_needed)
        found[f"{name}, blocks kept as memory allows"] = one or {"failed": "not enough memory"}
    for name, rank in (("transformers, all in bfloat16", 0), ("transformers and peft, LoRA", LORA_RANK)):
        peer = of_transformers(python, model, rows, tokens, steps, config, gpu_name, device, rank)
        if peer is not None:
            found[name] = peer
    shutil.rmtree(model)
    return found


def table(found):
    """Lines of Markdown."""
    lines = ["| what | tokens/s | MFU | peak GiB | of the plan |", "| --- | --- | --- | --- | --- |"]
    for name, one in found.items():
        if "failed" in one:
            lines.append(f"| {name} | failed | | | |")
            continue
        mfu = f"{one['mfu']:.1%}" if "mfu" in one else "-"
        over = f"{one['peak_over_plan']:+.2%}" if "peak_over_plan" in one else "-"
        lines.append(f"| {name} | {one['tokens_per_second']:.0f} | {mfu} | {one['peak_bytes'] / 2**30:.2f} | {over} |")
    return lines


def write_into(document, found, head):
    """Replaces what stands between the marks of the document."""
    begin, end = "<!-- speed -->\n", "<!-- end of speed -->"
    text = document.read_text()
    first, last = text.index(begin) + len(begin), text.index(end)
    document.write_text(text[:first] + head + "\n\n" + "\n".join(table(found)) + "\n" + text[last:])
