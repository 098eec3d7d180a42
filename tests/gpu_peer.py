"""transformers on the rows of tests/gpu_speed.py, one row a step: prints seconds of each step and the peak of memory as JSON.

gpu_peer.py MODEL ROWS STEPS cuda|cpu LORA_RANK     with adapters where the rank is not 0; ends with 3 where torch, transformers or the device is not there
"""
import json
import sys
import time

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError:
    sys.exit(3)


def main():
    model_folder, rows, steps, device, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    if device == "cuda" and not torch.cuda.is_available():
        return 3
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    model = AutoModelForCausalLM.from_pretrained(model_folder, torch_dtype=torch.bfloat16).to(device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if rank:
        try:
            import peft
        except ImportError:
            return 3
        model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
    seconds = []
    with open(rows) as lines:
        for line, _ in zip(lines, range(steps)):
            ids = torch.tensor([json.loads(line)["input_ids"]], device=device)
            synchronize()
            begun = time.monotonic()
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            synchronize()
            seconds.append(time.monotonic() - begun)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
