"""Training as torch itself shards and copies it. Each function returns this rank's losses, or what else it got."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from kinds import common
from kinds.common import Rows, pace, rank, small, trained, world

DDP = nn.parallel.DistributedDataParallel


def _sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


def _mesh(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def ddp():
    """Plain; with last batches of fewer rows, other ones on each rank; with gradients summed over steps; in another dtype on the way."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    out = [trained(DDP(small()))]
    rows = Rows(16 * world + 1 + 2 * rank)
    out.append(trained(DDP(small()), list(DataLoader(rows, batch_size=4))[:5]))
    model = DDP(small(), find_unused_parameters=True, gradient_as_bucket_view=True)
    for i in range(4):
        pace()
        if i % 2 == 0:
            with model.no_sync():
                model(torch.ones(2, 8) * rank).sum().backward()
        else:
            model(torch.ones(2, 8)).sum().backward()
    out.append(sum(value.grad.sum().item() for value in model.parameters()))
    model = DDP(small())
    model.register_comm_hook(None, bf16_compress_hook)
    return [*out, trained(model)]


def workers():
    """Rows from processes of their own, epoch after epoch."""
    rows, out = Rows(8 * world + 3), []
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=2)
    model = DDP(small())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        out += trained(model, loader)
    return out


def stalls():
    """Data that one rank after another waits for, longer than a notice is held back."""
    model, out = DDP(small()), []
    for late in range(2):
        if rank == late:
            time.sleep(7)
        out += trained(model, [torch.ones(4, 8) * (rank + 1)] * 3)
    return out


def stragglers():
    """One rank is the slow one for the whole of the job."""
    batches = [torch.ones(4, 8) * (rank + i) for i in range(30)]
    return trained(DDP(small()), (time.sleep(0.15 if rank == world - 1 else 0) or batch for batch in batches))


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    return trained(FullyShardedDataParallel(small(), device_id=torch.device("cpu"), use_orig_params=True))


def fsdp2():
    return trained(_sharded(small(), _mesh(world)))


def hsdp():
    """Sharded over one dimension of a mesh and copied over the other."""
    copies = 2 if world % 2 == 0 else 1
    out = trained(_sharded(small(), _mesh(copies, world // copies, names=("copies", "shards"))))
    return out + trained(_sharded(small(), _mesh(world, 1, names=("copies", "shards"))))


def tensor_parallel():
    """A product split over ranks, forwards and backwards; and what DTensor does to change how a tensor lies."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = _mesh(world)
    model = parallelize_module(small(24), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = [model(torch.ones(2, 8)).tolist(), trained(model, [torch.ones(2, 8) * i for i in range(4)])]
    value = distribute_tensor(torch.arange(float(world * world * 4)).reshape(2 * world, 2 * world), mesh, [Shard(0)])
    for placement in (Shard(1), Replicate(), Shard(0)):
        pace()
        value = value.redistribute(mesh, [placement])
        out.append(value.to_local().tolist())
    return [*out, (value @ value).full_tensor().tolist()]


def pipeline():
    """A stage on each rank; activations and their gradients are sent."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    out = []
    for schedule in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(rank)
        stage = nn.Linear(8, 8)
        losses = []
        steps = schedule(PipelineStage(stage, rank, world, torch.device("cpu")), 4, loss_fn=lambda made, wanted: (made - wanted).pow(2).mean())
        for _ in range(3):
            pace()
            if rank == 0:
                steps.step(torch.ones(8, 8))
            elif rank == world - 1:
                steps.step(target=torch.zeros(8, 8), losses=losses)
            else:
                steps.step()
        out.append([[loss.item() for loss in losses], stage.weight.grad.sum().item()])
    return out


def compiled():
    import torch._dynamo
    out = trained(torch.compile(DDP(small()), backend="aot_eager"))
    torch._dynamo.reset()
    out += trained(torch.compile(_sharded(small(), _mesh(world)), backend="aot_eager"))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def summed(value):
        import torch.distributed._functional_collectives as calls
        return calls.all_reduce(value * 2, "sum", dist.group.WORLD) + 1

    return [*out, summed(torch.ones(3) * rank).tolist()]


def join():
    """Ranks with other numbers of batches, whose calls the Join context makes up for."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DDP(small())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for _ in range(3 + 2 * rank):
            pace()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [value.tolist() for value in model.parameters()]


def checkpoints():
    """Saved sharded, also in the background, and read again into another model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def made():
        model = _sharded(small(), _mesh(world))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    model, optimizer = made()
    model(torch.ones(2, 8) * rank).sum().backward()
    optimizer.step()
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.save(state, checkpoint_id=common.folder_of_job / "at once")
    pace()
    dcp.async_save(state, checkpoint_id=common.folder_of_job / "later").result()
    out = []
    for name in ("at once", "later"):
        other, its = made()
        read = dict(zip(("model", "optimizer"), get_state_dict(other, its)))
        dcp.load(read, checkpoint_id=common.folder_of_job / name)
        set_state_dict(other, its, model_state_dict=read["model"], optim_state_dict=read["optimizer"])
        out.append([value.full_tensor().tolist() for value in other.parameters()])
    return out
