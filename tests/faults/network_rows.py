"""Several hosts on one: network namespaces on a bridge of their own, two nodes (or one a rank), Gloo between them.

The nodes get the variables that operators of pods set. Each mount and network namespace ends with its processes.
"""

import os
import subprocess
import uuid

from fixes import Started
from job import JobRow, Skip, now
from outcome import Expected, Outcome

PORT = 29511


def ip(*words, check=True):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


class Network:
    """Namespaces with addresses 10.77.0.1, 10.77.0.2, … on one bridge. Removed at the end of the with block."""

    def __init__(self, nodes):
        self.names = [f"ls{uuid.uuid4().hex[:6]}" for _ in range(nodes + 1)]  # the last one holds the bridge

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("needs root for network namespaces")
        try:
            for name in self.names:
                ip("netns", "add", name)
            hub = self.names[-1]
            ip("-n", hub, "link", "add", "br0", "type", "bridge")
            ip("-n", hub, "link", "set", "br0", "up")
            for node, name in enumerate(self.names[:-1]):
                ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"v{node}", "netns", hub)
                ip("-n", hub, "link", "set", f"v{node}", "master", "br0", "up")
                ip("-n", name, "addr", "add", f"10.77.0.{node + 1}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise Skip(f"no network namespaces with veth pairs: {getattr(error, 'stderr', error)}".strip()) from None
        return self

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "del", name, check=False)

    def cut(self, node):
        ip("-n", self.names[-1], "link", "set", f"v{node}", "down")

    def join(self, node):
        ip("-n", self.names[-1], "link", "set", f"v{node}", "up")

    def slow_down(self):
        """By netem where the kernel has it, else by a token bucket."""
        ways = ["netem delay 5ms rate 200mbit", "tbf rate 200mbit burst 64k latency 400ms"]
        for name in self.names[:-1]:
            tc = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root"]
            for way in ways:
                done = subprocess.run([*tc, *way.split()], capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    break
            else:
                raise Skip(f"tc: {done.stderr.strip()}")


def nodes_of(ranks):
    return 2 if ranks % 2 == 0 else ranks


def start_nodes(job, steps):
    nodes, started = nodes_of(job.ranks), []
    for node in range(nodes):
        env = {
            "RANK": node,
            "WORLD_SIZE": nodes,
            "NPROC_PER_NODE": job.ranks // nodes,
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": PORT,
        }
        words = job.words(steps=steps, transport="gloo")
        started.append(Started(None, tuple(words), env, ("ip", "netns", "exec", job.network.names[node])))
    job.start_all(started)


def cut(job):
    start_nodes(job, job.until_hurt)
    job.await_step()
    moment = now()
    job.network.cut(nodes_of(job.ranks) - 1)
    job.mend = lambda: job.network.join(nodes_of(job.ranks) - 1)  # "check the network"
    return moment


def slow(job):
    job.network.slow_down()
    start_nodes(job, 6)
    return now()


class NetworkRow(JobRow):
    """As the other jobs, inside a network that lasts as long as the row."""

    def run(self, ranks, folder, fixes=True, network=None):
        try:
            with Network(nodes_of(ranks)) as network:
                return super().run(ranks, folder, fixes, network)
        except Skip as why:
            return Outcome(ranks, skipped=str(why))


def network_rows():
    return [
        NetworkRow(
            "network_cut",
            "the link to the last node is cut",
            Expected("lost node", op=".", place="rank", says="does not answer", fix="--resume_from_checkpoint auto", bar="network", culprit=-1),
            cut,
        ),
        NetworkRow("network_slow", "200 Mbit/s between the nodes (harmless)", Expected("fine"), slow),
    ]
