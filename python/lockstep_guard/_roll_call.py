"""How the ranks of a job come to the roll call: the first of a node starts its agent, all join, and the agents of several nodes meet."""
import datetime
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import _ends, _gathers, _modules, _phases, _settings, _trainer
from ._launcher import torchrun, watch_for_ends
from ._places import own_line

ADDRESS, NO_AGENT = "at ", "none"
JOIN_SECONDS, LATE_SECONDS, ALL_SAY_SECONDS = 60.0, 2.0, 20.0
ANSWER_SECONDS = JOIN_SECONDS + 30.0  # of whoever must join first to answer

_lock = threading.Lock()
_meeting = None
_begun = False
_timeout = 1800.0  # of the default group's calls, in seconds


@dataclass
class Place:
    rank: int
    world: int
    local_rank: int
    local_world: int
    node: int
    master: str  # host:port, or whatever else the ranks met at


class Meeting:
    """Joins on a thread of its own: ranks may come late, and one that waits for the others is already seen."""

    def __init__(self, native, place, agent):
        self.native, self.place, self.agent, self.error, self.stopped, self.met = native, place, agent, "", False, False
        line = own_line(sys._getframe(1))
        site = f"init_process_group{f' at {line}' if line else ''}, meeting at {place.master}"
        self.thread = threading.Thread(target=self._join, args=(site, threading.main_thread().ident), daemon=True)
        self.thread.start()

    def _join(self, site, main_thread):
        place, now = self.place, time.monotonic()
        deadline = now + JOIN_SECONDS
        start = now if place.local_rank == 0 else now + LATE_SECONDS + place.local_rank / 4  # where the first rank never comes
        while not self.stopped:
            try:
                if time.monotonic() >= start:
                    start = time.monotonic() + 1.0
                    _start_agent(place, self.agent)
            except FileNotFoundError as error:
                self.error = str(error)
                return
            except RuntimeError as error:  # the name is taken: by one of this job, or of the one before
                self.error = str(error)
            try:
                self.native.join(place.rank, place.world, place.local_rank, place.node, self.agent,
                                 os.environ.get("TORCHELASTIC_ERROR_FILE", ""), site, main_thread, "TORCHELASTIC_RUN_ID" in os.environ)
                self.error = ""
                watch_for_ends(self.native, place, lambda: self.stopped or self.met)
                return
            except Exception as error:
                if time.monotonic() > deadline:
                    self.error = self.error or str(error)
                    return
            time.sleep(0.05)


def meet(native, args, kwargs):
    """Before the ranks meet, where the environment says who this is: so that one that never comes, or counts otherwise, is named."""
    global _meeting, _timeout
    with _lock:
        if _meeting is None and not _begun:
            try:
                _timeout = _timeout_of(args, kwargs)
                place = _place_by_environment(args, kwargs)
                if place is not None and place.world > 1:
                    _ends.tell(native)
                    _meeting = Meeting(native, place, _agent_of_environment(place))
            except Exception:  # then after they have met
                pass


def begin(native, c10d):
    """After they have met: whoever has not joined yet does now; from here on the job runs."""
    global _meeting, _begun
    rank, world = c10d.get_rank(), c10d.get_world_size()
    with _lock:
        if _begun:
            return _leave_if_other(native, rank, world)
        _begun = True
        if _meeting is not None:
            _meeting.met = True
    try:
        store = c10d._get_default_store()
        prefix = f"lockstep_guard/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if world == 1:
            return
        known = _how_many_know(store, prefix, world, _meeting is not None)
        if known not in (0, world):
            if _meeting is not None:
                _meeting.stopped = True
                _meeting.thread.join()
                native.leave()
            return _settings.say("guard off: not all ranks have it, or hosts have other numbers of ranks")
        if _meeting is None:
            place = _place_by_hosts(store, prefix, rank, world)
            agent = f"lockstep-guard-{secrets.token_hex(12)}"
            if place.local_rank > 0:
                agent = _answer(store, f"{prefix}/agent_name/{place.node}")
            else:
                store.set(f"{prefix}/agent_name/{place.node}", agent)
            _meeting = Meeting(native, place, agent)
        place = _meeting.place
        key = f"{prefix}/agent/{place.node}"
        if place.local_rank == 0:
            _meeting.thread.join()
            store.set(key, _meeting.error or ADDRESS + _meeting.agent)
        said = _answer(store, key)
        if not said.startswith(ADDRESS):
            _meeting.stopped = True
            if place.local_rank == 0:
                store.set(f"{prefix}/tree/{place.node}", NO_AGENT)
            return _settings.say(f"guard off: {said}") if place.node == 0 else None
        _meeting.thread.join()
        if _meeting.error:
            return _settings.say_alone(f"guard off: {_meeting.error}")  # of this rank alone
        if place.world > place.local_world and place.local_rank == 0:
            try:
                _join_tree(native, store, prefix, place)
            except Exception as error:  # its ranks have joined: who went now would be missed by them
                _settings.say_alone(f"guard: notice: node {place.node} judges its ranks alone: {error}")
        native.begin()
        _ends.tell(native)
        _phases.tell(native)
        _trainer.tell()
        _gathers.tell(native)
        _modules.tell(native)
    except Exception as error:
        if _meeting is not None:
            _meeting.stopped = True
        native.leave()  # what has joined and tells nothing would be missed
        _settings.say_alone(f"guard off: {error}")


def _leave_if_other(native, rank, world):
    """Ranks that met before as others, or with others, are not compared with what they did then."""
    place = _meeting.place if _meeting is not None else None
    if place is not None and (place.rank, place.world) != (rank, world):
        native.leave()
        place.rank, place.world = rank, world
        _settings.say_alone(f"guard off: rank {rank} of {world} was another in the process group before")


def _how_many_know(store, prefix, world, knows):
    """Ranks that know their place without being told, once all have said so: what they do next they must do alike. -1: some say nothing."""
    store.add(f"{prefix}/known/{world}", int(knows))
    if store.add(f"{prefix}/came/{world}", 1) == world:
        store.set(f"{prefix}/known_by/{world}", str(store.add(f"{prefix}/known/{world}", 0)))
    try:
        store.wait([f"{prefix}/known_by/{world}"], datetime.timedelta(seconds=ALL_SAY_SECONDS))
    except RuntimeError:
        return -1
    return int(store.get(f"{prefix}/known_by/{world}"))


def _answer(store, key):
    """A store waits as long as calls of the job may take: nobody may be held up so long for what another rank could not do."""
    store.wait([key], datetime.timedelta(seconds=ANSWER_SECONDS))
    return store.get(key).decode()


def _place_by_environment(args, kwargs):
    """None: not all of it is said."""
    method = kwargs.get("init_method", args[1] if len(args) > 1 else None) or "env://"
    if kwargs.get("store") is not None or not (method.startswith("env://") or method.startswith("tcp://")):
        return None
    rank, world = (kwargs.get(name, -1) for name in ("rank", "world_size"))
    # All ranks must decide alike. LOCAL_RANK and its like may be of a job that has started this one, or of a shell: torchrun's alone are
    # believed, where ranks are its own; whoever else is on this machine is one of its ranks.
    of_torchrun = rank == -1 and "TORCHELASTIC_RUN_ID" in os.environ
    rank = int(os.environ.get("RANK", -1)) if rank == -1 else rank
    world = int(os.environ.get("WORLD_SIZE", -1)) if world == -1 else world
    if method.startswith("tcp://"):
        master = method.removeprefix("tcp://").split("?")[0]
    else:
        master = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    alone = master.rsplit(":", 1)[0] in ("localhost", "127.0.0.1", "::1")
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", -1)) if of_torchrun else -1
    if local_world == -1 and alone:
        local_world = world
    if rank < 0 or world < 1 or local_world < 1:
        return None
    hosts = int(os.environ.get("GROUP_WORLD_SIZE", 1)) if of_torchrun else 1
    if hosts > 1 and hosts * local_world != world:  # other hosts have other numbers of ranks
        return None
    if world % local_world:  # counts that do not fit are what the ranks are asked about: one machine, as far as anybody can see
        return Place(rank, world, int(os.environ.get("LOCAL_RANK", rank)), local_world, 0, master)
    return Place(rank, world, rank % local_world, local_world, rank // local_world, master)


def _timeout_of(args, kwargs):
    """Nobody waits longer in a call, and whoever waits so long has asked for it: for a rank that prepares the data of all, say."""
    import torch.distributed.distributed_c10d as c10d
    asked = kwargs.get("timeout", args[2] if len(args) > 2 else None)
    if asked is None:
        backend = str(kwargs.get("backend", args[0] if args else "") or "")
        nccl = getattr(c10d, "default_pg_nccl_timeout", None)
        asked = nccl if "nccl" in backend and nccl is not None else c10d.default_pg_timeout
    return asked.total_seconds()


def _agent_of_environment(place):
    """The same name on all ranks of this node and attempt, and of no other."""
    attempt = ""
    if "TORCHELASTIC_RUN_ID" in os.environ:  # all ranks descend from one torchrun
        attempt = f"{torchrun()} {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')} {os.environ['TORCHELASTIC_RUN_ID']}"
    return "lockstep-guard-" + hashlib.sha256(f"{os.getuid()} {place.master} {place.node} {attempt}".encode()).hexdigest()[:24]


def _place_by_hosts(store, prefix, rank, world):
    """Who stands on which machine, said by all at the store; ranks of a machine need not follow each other there."""
    store.set(f"{prefix}/host/{rank}", socket.gethostname())
    hosts = [store.get(f"{prefix}/host/{other}").decode() for other in range(world)]
    nodes = list(dict.fromkeys(hosts))
    here = [other for other in range(world) if hosts[other] == hosts[rank]]
    if len(nodes) > 1 and (len(here) * len(nodes) != world or here != list(range(here[0], here[0] + len(here)))):
        raise RuntimeError("ranks of one machine must follow each other, as many on each")
    return Place(rank, world, here.index(rank), len(here), nodes.index(hosts[rank]), hosts[0])


def _start_agent(place, name):
    program = Path(__file__).with_name("agent")
    nodes = max(1, place.world // place.local_world)
    process = subprocess.Popen([program, name, str(place.local_world), str(place.world), str(place.node), str(nodes),
                                str(_settings.notice_seconds()), str(_settings.patience_seconds(_timeout)), _settings.mode()],
                               stdout=subprocess.PIPE, text=True)
    answer = process.stdout.readline().strip()
    process.stdout.close()
    process.wait()
    if answer != name:
        raise RuntimeError(answer or f"{program} has not started")


def _join_tree(native, store, prefix, place):
    """The agents of the nodes find each other; what stands at the store is a secret only together with LOCKSTEP_JOB_SECRET."""
    def entry(node):
        said = _answer(store, f"{prefix}/tree/{node}")
        if said == NO_AGENT:
            raise RuntimeError(f"node {node} has no agent")
        return said.split()
    port, host = native.tree_port(), place.master.rsplit(":", 1)[0]
    if place.node == 0:
        salt = secrets.token_hex(16)
        native.tell_salt(salt)
        store.set(f"{prefix}/tree/0", f"{host} {port} {salt}")
        return
    parent = entry(0)
    native.tell_salt(parent[2])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((host, 9))  # sends nothing
        own = towards.getsockname()[0]
    store.set(f"{prefix}/tree/{place.node}", f"{own} {port}")
    node = native.tree_parent(place.node)
    if node > 0:
        parent = entry(node)
    native.tell_parent(parent[0], int(parent[1]))
