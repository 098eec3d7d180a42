"""One fault of one job: who does it, in which step, and when it happened.

    fault = Fault()                      # JOB FAULT SEED FOLDER, as the runner gives them
    for step in fault.steps(globals()):  # the function of that name, once a step; `wrong` holds for the culprit in its step alone
        step()
"""
import datetime
import os
import random
import sys
import time
from functools import partial
from pathlib import Path

STEPS = 16


def draw(name, seed, world):
    """(culprit, step): any rank, 0 too, and a step after some that went well."""
    numbers = random.Random(f"{name} {seed} {world}")
    return numbers.randrange(world), numbers.randrange(4, 11)


class Fault:
    def __init__(self):
        self.name, seed, folder = sys.argv[1:4]
        self.folder = Path(folder)
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.culprit, self.step = draw(self.name, seed, self.world)
        self.mate = (self.culprit + 1) % self.world
        self.now = 0  # the step that all are in, but for ranks that have gone astray
        limit_collectives(self.timeout)

    @property
    def mine(self):
        return self.rank == self.culprit

    @property
    def timeout(self):
        """Seconds after which torch gives a call up; None: as ever."""
        return int(os.environ["FAULT_TIMEOUT"]) if "FAULT_TIMEOUT" in os.environ else None

    def strike(self):
        """It happens now."""
        written = self.folder / f"moment.{self.rank}"
        if not written.exists():
            written.write_text(str(time.time()))

    def strikes(self, step):
        """Whether this rank does it in this step; then it happens now."""
        self.now = step
        due = self.mine and step == self.step and self.name != "none"
        if due:
            self.strike()
        return due

    def steps(self, functions):
        for step in range(STEPS):
            yield partial(functions[self.name], self.strikes(step))
            time.sleep(0.02)

    def expect(self, got, wanted):
        """Numbers that are not what they must be have been handed out in silence."""
        if not bool((got == wanted).all()):
            (self.folder / f"wrong.{self.rank}").write_text(f"step {self.now}: {got}, not {wanted}\n")


def limit_collectives(seconds):
    if seconds is not None:
        import torch.distributed.distributed_c10d as c10d
        c10d.default_pg_timeout = datetime.timedelta(seconds=seconds)
