"""What a step of transformers + FSDP2 queues: ops that run, and the bytes that they read and write, over tensors without bytes.

  gpu_budget_peer.py CONFIG_DIR TOKENS LAYERS WORLD forward|train|train_again

Prints a line of JSON like bench/gpu_budget.cpp. A rank of WORLD with a group that moves nothing; bfloat16 with float32 masters. Attention
is the CPU's flash attention, one op like a GPU's.
"""
import collections
import json
import sys

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

NONE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "detach_", "_local_scalar_dense",
        "item", "_unsafe_view", "scalar_tensor"}


def bytes_of(x):
    count = x.element_size()
    for size, stride in zip(x.shape, x.stride()):
        count *= 1 if stride == 0 else size
    return count


def flops_of(name, tensors):
    """Of products, and of causal attention."""
    if name in ("mm", "addmm"):
        a, b = tensors[-3], tensors[-2]
        return 2 * a.numel() * b.shape[1]
    if "attention" not in name:
        return 0
    q, k = (tensors[1:3] if "backward" in name else tensors[:2])
    return (5 if "backward" in name else 2) * q.numel() * k.shape[2]


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.kernels = collections.defaultdict(lambda: {"calls": 0, "bytes": 0, "flops": 0})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        writes = any(one.alias_info and one.alias_info.is_write for one in func._schema.arguments)
        views = not writes and any(one.alias_info for one in func._schema.returns)
        if func.namespace in ("aten", "fsdp") and not views and name not in NONE:
            tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
            moved = sum(bytes_of(x) for x in tensors)
            if moved:
                self.kernels[name]["calls"] += 1
                self.kernels[name]["bytes"] += moved
                self.kernels[name]["flops"] += flops_of(name, tensors)
        return out


def main():
    folder, tokens, layers, world, work = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    mesh = dist.init_device_mesh("cpu", (world,))
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = layers
    config.use_cache = False
    count = Count()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        if work == "train_again":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        ids = torch.zeros((1, tokens), dtype=torch.long)
        model.train(work != "forward")
        with count:
            if work == "forward":
                with torch.no_grad():
                    model(input_ids=ids, logits_to_keep=1)
            else:
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
    print(json.dumps(count.kernels))


if __name__ == "__main__":
    main()
