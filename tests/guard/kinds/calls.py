"""Calls of every sort that c10d has, as programs make them by themselves. Each function returns what this rank got."""
import sys
import time

import torch
import torch.distributed as dist

from kinds import common
from kinds.common import pace, rank, world


def groups():
    """Groups of a part of the ranks, groups of equal sizes, groups by enumeration; calls of several of them on the way."""
    out = []
    for i in range(world - 1):
        pair = dist.new_group([i, i + 1])
        if rank in (i, i + 1):
            pace()
            value = torch.ones(3 + i) * rank
            for _ in range(1 + i):
                dist.all_reduce(value, group=pair)
            out.append(value.tolist())
    size = 2 if world % 2 == 0 else 1
    for own, _ in (dist.new_subgroups(size), dist.new_subgroups_by_enumeration([[r] for r in reversed(range(world))])):
        value = torch.full((2,), float(rank))
        dist.all_reduce(value, group=own)
        out.append(value.tolist())
    alone = dist.new_group([rank], use_local_synchronization=True)
    value = torch.ones(2)
    dist.all_reduce(value, group=alone)
    dist.destroy_process_group(alone)
    for _ in range(3):  # a name that comes again
        again = dist.new_group(list(range(world)))
        dist.all_reduce(value, group=again)
        dist.destroy_process_group(again)
    return [out, value.tolist()]


def collectives():
    """Each once or more, of several dtypes, blocking and not; lists of uneven lengths on the way."""
    out = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        pace()
        value = torch.ones(5, dtype=dtype) * (rank + 1)
        dist.all_reduce(value)
        works = [dist.all_reduce(value, op, async_op=True) for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN)]
        for work in works:
            work.wait()
        gathered = [torch.zeros_like(value) for _ in range(world)]
        dist.all_gather(gathered, value * rank)
        out.append([value.tolist(), [one.tolist() for one in gathered]])
    flat = torch.zeros(world * 2)
    dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)))
    mine = torch.zeros(2)
    dist.reduce_scatter_tensor(mine, flat)
    dist.reduce(flat, world - 1)
    lists = [torch.zeros(1 + r) for r in range(world)]
    for r in range(world):
        dist.broadcast(lists[r], src=r)
    parts = [torch.full((1 + rank,), float(rank)) for _ in range(world)]
    got = [torch.zeros(1 + r) for r in range(world)]
    for r in range(world):
        pace()
        dist.scatter(got[r], parts if rank == r else None, src=r)
    whole = [torch.zeros(1) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.full((1,), float(rank)), whole, dst=0)
    return [out, mine.tolist(), flat.tolist() if rank == world - 1 else None, [one.tolist() for one in got], str(whole)]


def objects():
    """Pickled, of other sizes on each rank."""
    mine = {"rank": rank, "text": "y" * rank * 100}
    everybody, some, sent = [None] * world, [None] * world if rank == 0 else None, [mine if rank == 0 else None, rank if rank == 0 else None]
    dist.all_gather_object(everybody, mine)
    pace()
    dist.gather_object(mine, some, dst=0)
    dist.broadcast_object_list(sent, src=0)
    given = [None]
    dist.scatter_object_list(given, [[r] * (r + 1) for r in range(world)] if rank == 0 else None, src=0)
    pace()
    passed = [None, None]
    if rank == 0:
        dist.send_object_list([mine, "to rank 1"], dst=1)
    elif rank == 1:
        dist.recv_object_list(passed, src=0)
    return [everybody, some, sent, given, passed]


def functional():
    """torch.distributed._functional_collectives: what torch.compile and DTensor call."""
    import torch.distributed._functional_collectives as calls
    value, out = torch.arange(2.0 * world) + rank, []
    for _ in range(3):
        pace()
        out += [calls.all_reduce(value, "sum", dist.group.WORLD), calls.all_gather_tensor(value, 0, dist.group.WORLD),
                calls.reduce_scatter_tensor(value, "sum", 0, dist.group.WORLD), calls.broadcast(value, 0, dist.group.WORLD),
                calls.all_to_all_single(value, None, None, dist.group.WORLD), *calls.all_reduce_coalesced([value, value[:2]], "sum", dist.group.WORLD),
                *calls.all_gather_into_tensor_coalesced([value, value[:1]], dist.group.WORLD),
                calls.permute_tensor(value, [(r + 1) % world for r in range(world)], dist.group.WORLD)]
    wanted = value.clone().requires_grad_()
    calls.all_gather_tensor_autograd(wanted, 0, dist.group.WORLD).pow(2).sum().backward()
    return [one.tolist() for one in out] + [wanted.grad.tolist()]


def pairs():
    """Sends and receives: in a ring, in batches, under tags, from anybody, in other shapes of one size."""
    left, right, out, got = (rank - 1) % world, (rank + 1) % world, [], torch.zeros(3)

    def ring(start):
        pace()
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
        pace()
        dist.send(torch.full((3,), float(rank)), 0)
        if rank == world - 1:
            dist.send(torch.full((3,), 77.0), 0, tag=9)
    return out


def all_to_all():
    """Even and uneven, in one tensor and in lists; sizes are each rank's own."""
    even = torch.zeros(world * 2)
    dist.all_to_all_single(even, torch.arange(world * 2.0) + 10 * rank)
    pace()
    give = [1 + (rank + to) % 3 for to in range(world)]
    take = [1 + (sender + rank) % 3 for sender in range(world)]
    uneven = torch.zeros(sum(take))
    dist.all_to_all_single(uneven, torch.full((sum(give),), float(rank)), take, give)
    out = [even.tolist(), uneven.tolist()]
    lists = [torch.zeros(count) for count in take]
    try:
        dist.all_to_all(lists, [torch.full((count,), float(rank)) for count in give])
    except (RuntimeError, NotImplementedError) as error:  # Gloo of some torch has none: all ranks say so
        return [*out, type(error).__name__]
    return [*out, [one.tolist() for one in lists]]


def coalesced():
    """Calls laid together, of one kind and of lists."""
    together = [torch.ones(2) * rank, torch.ones(3) * rank]
    with dist._coalescing_manager():
        for value in together:
            dist.all_reduce(value)
    pace()
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), float(rank))])
    dist.all_reduce_coalesced(together)
    return [[value.tolist() for value in together], [[one.tolist() for one in of] for of in lists]]


def barriers():
    """One after another, monitored, of a group; and a rank that prepares what the others read."""
    group = dist.new_group(list(range(world)))
    for _ in range(3):
        pace()
        dist.barrier()
        dist.monitored_barrier()
        dist.barrier(group=group)
    dist.barrier(async_op=True).wait()
    if rank == 0:
        time.sleep(1)
    dist.barrier()
    return "through"


PADDED = """import torch
import torch.distributed as dist


def reduce_scatter_coalesced(tensors, group=None):
    whole = torch.cat([*tensors, torch.full((1,), float("nan" if dist.get_rank() else 0))])
    out = torch.zeros(len(whole) // dist.get_world_size())
    dist.reduce_scatter_tensor(out, whole, group=group)
    return out
"""


def padding():
    """Stands in for DeepSpeed, which fills up what it sends with memory as it comes: NaN there is nobody's number."""
    folder = common.folder_of_job / str(rank)
    (folder / "deepspeed" / "runtime" / "comm").mkdir(parents=True)
    (folder / "deepspeed" / "runtime" / "comm" / "coalesced_collectives.py").write_text(PADDED)
    sys.path.insert(0, str(folder))
    try:
        from deepspeed.runtime.comm.coalesced_collectives import reduce_scatter_coalesced
    finally:
        sys.path.remove(str(folder))
    gradients = [torch.ones(world * 100 - 1) * rank]
    got = reduce_scatter_coalesced(gradients)
    for name in [name for name in sys.modules if name.split(".")[0] == "deepspeed"]:
        del sys.modules[name]
    return got.nan_to_num(-1).tolist()


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


def overlaps():
    """Calls that are begun here and awaited later, while the ranks make others in an order of their own; and those of threads."""
    import threading
    group, out = dist.new_group(), torch.ones(2) * rank
    if rank == 1:
        work = dist.all_reduce(out, group=group, async_op=True)
        time.sleep(2)
    dist.all_reduce(torch.ones(3))
    if rank != 1:
        work = dist.all_reduce(out, group=group, async_op=True)
    work.wait()

    def meet():  # when this rank's shard is written
        time.sleep(2.5 if rank == 0 else 0)
        dist.barrier(group=group)
    thread = threading.Thread(target=meet)
    thread.start()
    time.sleep(2 if rank == 1 else 0)
    dist.all_reduce(torch.ones(3))
    thread.join()

    if rank < 2:  # each receives in one thread, and sends in another
        there = torch.zeros(3)

        def send():
            time.sleep(2)
            dist.send(torch.ones(3) * rank, 1 - rank)
        thread = threading.Thread(target=send)
        thread.start()
        dist.recv(there, 1 - rank)
        thread.join()
        out = torch.cat([out, there])
    return out.tolist()


def children():
    """Processes forked from a rank, which end in all ways: none of them is the rank."""
    import multiprocessing
    import os
    import signal
    fork = multiprocessing.get_context("fork")
    codes = []
    for work, end in ((_child_sleeps, signal.SIGTERM), (_child_sleeps, signal.SIGABRT), (_child_work, None)):
        if rank == 1:  # the others wait meanwhile: whoever takes what the child does for what the rank does says so
            child = fork.Process(target=work)
            child.start()
            if end:
                os.kill(child.pid, end)
            child.join()
            codes.append(child.exitcode)
            time.sleep(1)
        dist.all_reduce(torch.ones(2))
    batches = [batch.tolist() for batch in torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2, num_workers=1)]
    return [codes, batches]


def _child_sleeps():
    time.sleep(60)


def _child_work():
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1).step()
    if guard := sys.modules.get("lockstep_guard._core"):  # what it would say of groups; that Gloo's are destroyed in a child may hang by itself
        name = dist.group.WORLD.group_name
        guard.leave_group(name)
        guard.learn_group(name, "default", [0], False)
        guard.stand_at("in a child")
