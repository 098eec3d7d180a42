"""Plain calls of torch.distributed. A function is a step of all ranks; lines marked "# here" are places that a diagnosis may name."""
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from fault import Fault

fault = Fault()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
team = dist.new_group([fault.culprit, fault.mate]) if fault.name == "wrong_group" else None


def none(wrong):
    value = torch.ones(3, 4)
    dist.all_reduce(value)
    fault.expect(value, world)
    dist.broadcast(value, src=0)
    dist.barrier()


# ---- One call, another one on a rank.

def shape_4_6(wrong):
    value = torch.ones(6 if wrong else 4)
    dist.all_reduce(value)  # here
    fault.expect(value, world)


def shape_200k_300k(wrong):
    dist.all_reduce(torch.ones(300_000 if wrong else 200_000))  # here


def shape_2x3_3x2(wrong):
    value = torch.arange(6.0).reshape(2, 3)
    turned = value.T.contiguous() if wrong else value
    dist.all_reduce(turned)  # here
    fault.expect(turned.flatten(), torch.arange(6.0) * world)


def dtype_f64_f32(wrong):
    dist.all_reduce(torch.ones(50, dtype=torch.float64 if wrong else torch.float32))  # here


def dtype_i32_f32(wrong):
    value = torch.ones(50, dtype=torch.int32 if wrong else torch.float32)
    dist.all_reduce(value)  # here
    fault.expect(value, world)


def all_gather_all_reduce(wrong):
    value = torch.ones(4)
    if wrong:
        dist.all_gather([torch.empty(4) for _ in range(world)], value)  # here
    else:
        dist.all_reduce(value)


def sum_max(wrong):
    value = torch.ones(4)
    dist.all_reduce(value, op=dist.ReduceOp.MAX if wrong else dist.ReduceOp.SUM)  # here
    fault.expect(value, world)


def uneven_first_dim(wrong):
    rows = torch.ones(5 if wrong else 3, 2)
    dist.all_gather([torch.empty_like(rows) for _ in range(world)], rows)  # here


def broadcast_source(wrong):
    value = torch.ones(4)
    dist.broadcast(value, src=1 if wrong else 0)  # here


def wrong_group(wrong):
    value = torch.ones(4)
    dist.all_reduce(value, group=team if wrong else None)  # here
    if rank in (fault.culprit, fault.mate):
        dist.all_reduce(value, group=team)


# ---- Calls in another order, or none.

def equal_calls_swapped(wrong):
    loss, tokens = torch.ones(1), torch.full((1,), 100.0)

    def add_losses():
        dist.all_reduce(loss)  # here

    def add_tokens():
        dist.all_reduce(tokens)  # here

    for add in (add_tokens, add_losses) if wrong else (add_losses, add_tokens):
        add()
    fault.expect(loss, world)


def kinds_swapped(wrong):
    value = torch.ones(4)
    if wrong:
        dist.broadcast(value, src=0)  # here
    dist.all_reduce(value)  # here
    if not wrong:
        dist.broadcast(value, src=0)  # here


def all_reduce_skipped(wrong):
    loss, tokens = torch.ones(1), torch.full((1,), 100.0)
    dist.all_reduce(loss)
    if not wrong:
        dist.all_reduce(tokens)  # here
    fault.expect(loss, world)


def barrier_missing(wrong):
    dist.all_reduce(torch.ones(4))
    if not wrong:
        dist.barrier()  # here


def tuple_2_1(wrong):
    """Each leaf of a structure by itself: who has another structure makes another number of calls."""
    sizes = (torch.ones(2),) if wrong else (torch.ones(2), torch.ones(2))
    for leaf in sizes:
        dist.all_gather([torch.empty_like(leaf) for _ in range(world)], leaf)  # here
    total = torch.ones(2)
    dist.all_reduce(total)
    fault.expect(total, world)


def none_tensor(wrong):
    loss, size = torch.ones(2), None if wrong else torch.full((2,), 7.0)
    dist.all_reduce(loss)
    if size is not None:
        dist.all_reduce(size)  # here
    fault.expect(loss, world)


# ---- Gradients summed by hand.

def gradients_summed(model):
    model(torch.ones(2, 8)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # here: wider_layer, one_layer_more
    model.zero_grad()


def wider_layer(wrong):
    width = 12 if fault.mine else 10
    if fault.mine:
        fault.strike()
    gradients_summed(nn.Sequential(nn.Linear(8, width), nn.Linear(width, 1)))


def one_layer_more(wrong):
    deeper = [nn.Linear(1, 3)] if fault.mine else []
    if fault.mine:
        fault.strike()
    gradients_summed(nn.Sequential(nn.Linear(8, 10), nn.Linear(10, 1), *deeper))


# ---- Groups, which all of their ranks make, in one order.

def groups_in_another_order(wrong):
    if fault.now == fault.step:
        groups = [[fault.culprit, fault.mate], [fault.mate]]
        for ranks in reversed(groups) if wrong else groups:
            dist.new_group(ranks)  # here
    dist.all_reduce(torch.ones(4))


def group_left_out(wrong):
    if fault.now == fault.step and not wrong:
        dist.new_group([fault.culprit, fault.mate])  # here
    dist.all_reduce(torch.ones(4))  # here


# ---- Pairs.

def both_receive(wrong):
    value = torch.ones(4)
    if fault.mine and not wrong:
        dist.send(value, fault.mate)
        dist.recv(value, fault.mate)
    elif fault.mine:
        dist.recv(value, fault.mate)  # here
        dist.send(value, fault.mate)
    elif rank == fault.mate:
        dist.recv(value, fault.culprit)
        dist.send(value, fault.culprit)
    dist.all_reduce(value)


def send_to_another(wrong):
    """Its mate waits for it; of three."""
    if fault.mine:
        dist.send(torch.ones(4), (fault.mate + 1) % world if wrong else fault.mate)  # here
    elif rank == fault.mate:
        dist.recv(torch.ones(4), fault.culprit)  # here
    dist.all_reduce(torch.ones(4))


def both_receive_later(wrong):
    """Begun, and awaited by themselves."""
    receive, send = [partial(call, torch.ones(4), fault.mate if fault.mine else fault.culprit) for call in (dist.irecv, dist.isend)]
    for call in (send, receive) if fault.mine and not wrong else (receive, send) if fault.mine or rank == fault.mate else ():
        call().wait()  # here
    dist.all_reduce(torch.ones(4))


def around_the_ring(sends, receives):
    works = [dist.isend(torch.ones(4), (rank + 1) % world)] if sends else []  # here: send_left_out
    works += [dist.irecv(torch.ones(4), (rank - 1) % world)] if receives else []  # here: receive_left_out
    for work in works:
        work.wait()
    dist.all_reduce(torch.ones(4))  # here: send_left_out, receive_left_out


def send_left_out(wrong):
    around_the_ring(sends=not wrong, receives=True)


def receive_left_out(wrong):
    around_the_ring(sends=True, receives=not wrong)


def short_receive(wrong):
    if fault.mine:
        dist.recv(torch.zeros(4 if wrong else 6), fault.mate)  # here
    elif rank == fault.mate:
        dist.send(torch.ones(6), fault.culprit)
    dist.all_reduce(torch.ones(4))


# ---- What looks like a fault and is none.

def large_objects(wrong):
    if fault.now == fault.step:
        fault.strike()
        objects = [None] * world
        dist.all_gather_object(objects, bytes(50 << 20))
    dist.all_reduce(torch.ones(4))


def slow_rank(wrong):
    if fault.mine:
        fault.strike()
    time.sleep(0.5 if fault.mine else 0.05)
    dist.all_reduce(torch.ones(4))


def group_of_members(wrong):
    if fault.now == fault.step and rank in (fault.culprit, fault.mate):
        fault.strike()
        value = torch.ones(4)
        dist.all_reduce(value, group=dist.new_group([fault.culprit, fault.mate]))
        fault.expect(value, 2)
    dist.all_reduce(torch.ones(4))


for step in fault.steps(globals()):
    step()
dist.barrier()
dist.destroy_process_group()
