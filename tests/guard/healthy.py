"""Jobs of several kinds, one after another, in which nothing is wrong: torchrun … healthy.py FOLDER writes what each rank got."""
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import lockstep_guard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(8):
        loss = model(torch.randn(4, 8, generator=rows)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def small(width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))


def ddp():
    return trained(nn.parallel.DistributedDataParallel(small()))


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model, mesh = small(), init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return trained(model)


def groups():
    """Groups of a part of the ranks, objects, pairs, lists of uneven lengths on the way, functional calls."""
    import torch.distributed._functional_collectives as functional
    out = []
    for i in range(world - 1):
        pair = dist.new_group([i, i + 1])
        if rank in (i, i + 1):
            value = torch.ones(3 + i) * rank
            for _ in range(1 + i):
                dist.all_reduce(value, group=pair)
            out.append(value.tolist())
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "y" * rank})
    if rank == 0:
        dist.send(torch.ones(2), 1)
    if rank == 1:
        dist.recv(torch.zeros(2), 0)
    lists = [torch.zeros(1 + r) for r in range(world)]
    for r in range(world):
        dist.broadcast(lists[r], src=r)
    dist.monitored_barrier()
    return [out, objects, functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).tolist()]


def pairs():
    """Sends and receives: in a ring, in batches, under tags, from anybody, in other shapes of one size."""
    left, right, out, got = (rank - 1) % world, (rank + 1) % world, [], torch.zeros(3)

    def ring(start):
        for work in start():
            work.wait()
        out.append(got.tolist())

    ring(lambda: [dist.isend(torch.full((3,), float(rank)), right), dist.irecv(got, left)])
    ring(lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), rank + 10.0), right), dist.P2POp(dist.irecv, got, left)]))
    if rank == 0:
        tagged = dist.isend(torch.arange(6.0).reshape(2, 3), 1, tag=4)
        dist.send(torch.ones(2), 1)
        tagged.wait()
    if rank == 1:
        turned, plain = torch.zeros(3, 2), torch.zeros(2)
        dist.recv(plain, 0)
        dist.recv(turned, 0, tag=4)
        out += [plain.tolist(), turned.tolist()]
    if rank == 0:  # whoever comes; then one by name
        seen = sorted(dist.recv(got) for _ in range(world - 1))
        dist.recv(got, world - 1, tag=9)
        out.append([seen, got.tolist()])
    else:
        dist.send(torch.full((3,), float(rank)), 0)
        if rank == world - 1:
            dist.send(torch.full((3,), 77.0), 0, tag=9)
    return out


def meshes():
    """Sharded over one dimension of a mesh and copied over the other; a product split over ranks; many small groups."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    out = []
    if world % 2 == 0:
        model, mesh = small(), init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "shards"))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        out.append(trained(model))
        of_rank, _ = dist.new_subgroups(2)
        value = torch.full((2,), float(rank))
        dist.all_reduce(value, group=of_rank)
        out.append(value.tolist())
    model = parallelize_module(small(24), init_device_mesh("cpu", (world,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out.append(model(torch.ones(2, 8)).tolist())
    return out


def compiled():
    model = nn.parallel.DistributedDataParallel(small())
    return trained(torch.compile(model, backend="aot_eager"))


def uneven():
    """Ranks with other numbers of batches, whose calls the Join context makes up for; all_to_all of other sizes; calls laid together."""
    from torch.distributed.algorithms.join import Join
    model = nn.parallel.DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for _ in range(3 + rank):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    parts = [torch.full((1 + rank,), float(rank)) for _ in range(world)]
    got = [torch.zeros(1 + r) for r in range(world)]
    for r in range(world):
        dist.scatter(got[r], parts if rank == r else None, src=r)
    together = [torch.ones(2) * rank, torch.ones(3) * rank]
    with dist._coalescing_manager():
        for value in together:
            dist.all_reduce(value)
    return [[value.tolist() for value in got + together], next(model.parameters()).sum().item()]


def branches():
    """One call a step from either of two lines, by what the batch of a rank holds."""
    rows, total = torch.Generator().manual_seed(100 + rank), torch.zeros(1)
    for _ in range(60):
        count = torch.randint(0, 2, (1,), generator=rows).float()
        if count > 0:
            dist.all_reduce(count)
        else:
            dist.all_reduce(count)
        total += count
    return total.item()


def saved():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = fully_shard(small(), mesh=init_device_mesh("cpu", (world,)))
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder[0])
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    return sorted(state["model"])


def child_work():
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1).step()


def children():
    """Processes forked from a rank, which end in all ways: none of them is the rank."""
    import multiprocessing
    import os
    import signal
    import time
    fork = multiprocessing.get_context("fork")
    codes = []
    for end in (signal.SIGTERM, signal.SIGABRT, None):
        if rank == 1:  # the others wait meanwhile: whoever takes the child's end for the rank's says so
            child = fork.Process(target=time.sleep, args=(60,)) if end else fork.Process(target=child_work)
            child.start()
            if end:
                os.kill(child.pid, end)
            child.join()
            codes.append(child.exitcode)
            time.sleep(1)
        dist.all_reduce(torch.ones(2))
    batches = [batch.tolist() for batch in torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2, num_workers=1)]
    return [codes, batches]


def accelerate():
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = small()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    out = []
    for i in range(4):
        loss = model(torch.ones(2, 8) * (rank + i) * 0.1).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        out.append(accelerator.gather(loss.detach()).tolist())
    accelerator.wait_for_everyone()
    return out


def trainer():
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                         vocab_size=64))
    rows = [{"input_ids": [i % 60 + 1, 2, 3, i % 7], "labels": [i % 60 + 1, 2, 3, i % 7]} for i in range(24)]
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(model=model, train_dataset=rows, eval_dataset=rows[:7], args=TrainingArguments(
            output_dir=folder, max_steps=4, per_device_train_batch_size=2, eval_strategy="steps", eval_steps=2, save_strategy="no", report_to=[],
            use_cpu=True, logging_steps=1, disable_tqdm=True))
        run.train()
    return [entry.get("loss", entry.get("eval_loss")) for entry in run.state.log_history]


found = {make.__name__: make() for make in (ddp, fsdp2, groups, pairs, meshes, compiled, uneven, branches, saved, children, accelerate, trainer)}
folder = Path(sys.argv[1])
(folder / f"{rank}.json").write_text(json.dumps(found))
(folder / f"{rank}.calls").write_text(json.dumps(lockstep_guard.report()))
dist.destroy_process_group()
