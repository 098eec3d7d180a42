"""A job of plain collective calls: torchrun … calls.py none|slow|asleep|again|"other members"|"many tags"|"many teams"|os._exit|crossed|"one number"|"for ever"|
FAULT|END. What rank 1 does on the way is right but for a FAULT: "shape", "splits", "shape, and faulthandler", "order", "unused", "nan", "alone", "thread",
"monitored"; and for the ways to END: "caught", "hooked", "SystemExit", "sys.exit", "sys.exit 0", "crashed", "os._exit 3", "destroyed",
"left, and sys.exit" of the others, or "left, and SystemExit"."""
import datetime
import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from story import free_port

kind = sys.argv[1]
if kind == "shape, and faulthandler":
    faulthandler.enable()
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.zeros(3, 4)


def step():
    dist.all_reduce(x)  # usual call
    dist.broadcast(torch.zeros(7), src=0)


def meet_anew():
    """Groups are left and made anew, under the same names."""
    world, port = dist.get_world_size(), torch.tensor([free_port()])
    dist.broadcast(port, src=0)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port.item(), world, rank == 0), rank=rank, world_size=world)


def end(way):
    if way == "caught":
        try:
            raise ValueError("bad row 12")
        except ValueError:
            print("training failed", flush=True)
            sys.exit(1)
    if way == "hooked":
        sys.excepthook = lambda *_: print("a hook of one's own", flush=True)
        raise ValueError("bad row 12")
    if way == "SystemExit":
        raise SystemExit(3)
    if way == "sys.exit":
        sys.exit("no learning rate")
    if way == "sys.exit 0":
        sys.exit()
    if way == "crashed":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "os._exit 3":
        os._exit(status=3)
    if way == "destroyed":
        dist.destroy_process_group()
        time.sleep(60)


print("up", flush=True)
for i in range(1 << 30 if kind == "for ever" else 60):
    if rank == 1 and i == 8 and kind == "slow":
        time.sleep(10)
    if rank == 1 and i == 8 and kind == "asleep":
        print("asleep", flush=True)
        time.sleep(600)
    if rank == 1 and i == 40 and kind.startswith("shape"):  # by then nodes have met
        dist.all_reduce(torch.zeros(5))  # another call
    if rank == 1 and i == 8:
        end(kind)
    if i == 8 and kind == "crossed":  # awaited when all are begun: in whatever order
        other = dist.new_group()
        for work in [dist.all_reduce(torch.ones(3), group=group, async_op=True) for group in ([other, None] if rank == 1 else [None, other])]:
            work.wait()
    if i == 8 and kind == "one number":  # is one however it is wrapped
        count = torch.zeros(1) if rank == 1 else torch.tensor(3.0)
        dist.all_reduce(count)
        dist.broadcast(count, src=0)
    if i == 8 and kind.startswith("left, and") and rank == 1:
        dist.destroy_process_group()
        sys.exit()
    try:
        step()
    except RuntimeError as error:
        print(f"training failed: {error}", flush=True)
        if kind == "left, and sys.exit":
            sys.exit(1)
        raise SystemExit(1) if kind == "left, and SystemExit" else error
    time.sleep(0.02)
if kind == "slow":
    import lockstep_guard
    until = time.monotonic() + 30
    while lockstep_guard.report()["slowest"] != 1 and time.monotonic() < until:  # it is told once a second
        time.sleep(0.1)
    print(lockstep_guard.report() if rank == 0 else "", flush=True)
if kind == "again":  # one rank is slow to make its first call there
    meet_anew()
    time.sleep(1.5 if rank == 1 else 0)
    step()
    for ranks in (None, iter(range(dist.get_world_size()))):
        group = dist.new_group(ranks=ranks)
        time.sleep(1.5 if rank == 1 else 0)
        dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group(group)
if kind == "other members":  # of the groups of one name; rank 0 is in the first, and in the third
    for size, ranks in enumerate(([0, 1], [1, 2], [0, 1], [0, 1, 2]), 3):
        meet_anew()
        team = dist.new_group(ranks)
        if rank in ranks:
            dist.all_reduce(torch.ones(size), group=team)
        if rank in ranks[:2]:
            (dist.send if rank == ranks[0] else dist.recv)(torch.ones(size), ranks[1] if rank == ranks[0] else ranks[0], group=team)
        if rank == 1:
            time.sleep(1.5)
        if rank in ranks:
            dist.all_reduce(torch.ones(size), group=team)
if kind == "many tags":  # rank 0's board is full before the others' are; then they wait for each other in a row: 1 for 0, 0 for 2
    for tag in range(120):
        for other in (1, 2):
            if rank in (0, other):
                (dist.send if rank == 0 else dist.recv)(torch.ones(2), other if rank == 0 else 0, tag=tag)
    if rank == 2:
        time.sleep(8)
        dist.send(torch.ones(2), 0, tag=999)
    if rank == 0:
        dist.recv(torch.ones(2), 2, tag=999)
        dist.send(torch.ones(2), 1, tag=999)
    if rank == 1:
        dist.recv(torch.ones(2), 0, tag=999)
if kind == "many teams":  # more than a board has room for, at once only a part of them
    for last in range(3):
        team = dist.new_group()
        for tag in range(120):
            if rank < 2:
                value = torch.ones(5 if (last, tag, rank) == (2, 119, 1) else 3)
                (dist.send if rank == 0 else dist.recv)(value, 1 - rank, group=team, tag=tag)
        dist.destroy_process_group(team)
if kind == "nan":  # in the last layers' gradients, while those of others are still to be written
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(400)]), bucket_cap_mb=0.001)
    for i in range(4):  # the first one is a single bucket
        (model(torch.ones(2, 4)).sum() * (float("nan") if rank == 1 and i == 3 else 1)).backward()
        model.zero_grad()
    time.sleep(2)
if kind == "splits":  # two to each, and rank 1 awaits more of rank 0
    take = [5, 2, 2] if rank == 1 else [2, 2, 2]
    dist.all_to_all_single(torch.zeros(sum(take), 3), torch.ones(6, 3), take, [2, 2, 2])  # usual call
    time.sleep(5)
if kind == "order":
    parts = [("a", torch.nn.Linear(4, 8)), ("b", torch.nn.Linear(8, 4))]
    torch.nn.parallel.DistributedDataParallel(torch.nn.ModuleDict(reversed(parts) if rank == 1 else parts))
if kind == "unused":
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 8), find_unused_parameters=rank == 1)
if kind == "alone" and rank == 1:
    dist.barrier()  # which nobody else makes
if kind == "monitored":  # comes to it behind a call that the others make behind it
    calls = [lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=12)), lambda: dist.all_reduce(x)]
    for call in reversed(calls) if rank == 1 else calls:
        call()
if kind == "thread":  # with a group of its own; on one rank it dies
    own = dist.new_group()

    def work():
        for row in range(6):
            if rank == 1 and row == 4:
                raise ValueError("bad row 12")
            dist.all_reduce(torch.ones(2), group=own)

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join()
    time.sleep(4 if rank == 1 else 0)
    os._exit(0)
if kind == "os._exit":
    os._exit(0)
dist.destroy_process_group()
