"""A row that runs lockstep itself: the job is started and hurt, its diagnosis is read, and the fix that the diagnosis names
is applied to the very words the job was started with, the fault still there."""

import os
import re
import subprocess
import time
from dataclasses import replace

from fixes import Started, apply_fix, read_fix
from launch_test import free_port
from outcome import LIMIT, Outcome
from processes import Run
from small_job import sft_words
from story import BINARY, rank_of
from worker_rows import fault_times, outcome_of

LONG = 100000  # steps: the job must be ended by the roll call
SOME = 40  # steps of a job that is to come to its end once it is mended
MORE = 200  # of one that is hurt on the way and comes to its end all the same
NAMES_SOMETHING = re.compile(r"--[a-z]|[A-Z]=|same command")
PRELOAD = BINARY.parent / "libfault_preload.so"


def now():
    return [time.monotonic(), time.time()]


class Skip(Exception):
    """What this machine cannot do."""


class JobRow:
    """`body(job)` starts and hurts the job, and returns the moment of the fault; None where a file tells it.

    A fault that stands in the words, the variables or the files of the job is there again when the fix is tried. `again(job)`
    makes one again that came from outside; without it, that was an event which is over: a signal, say.
    """

    runs_lockstep = True

    def __init__(self, name, summary, expected, body, again=None):
        self.name, self.summary, self.expected, self.body, self.again = name, summary, expected, body, again
        self.files = None  # set by the suite

    def run(self, ranks, folder, fixes=True, network=None):
        job = Job(None, self.files, ranks, folder, network=network, fixes=fixes)
        try:
            outcome = self.hurt(job)
            if fixes and not outcome.hung:
                self.try_fix(job, outcome)
            return outcome
        except Skip as why:
            return Outcome(ranks, skipped=str(why))
        finally:
            for undo in job.undo:
                undo()

    def hurt(self, job):
        with Run(job.folder) as job.run:
            try:
                fault = self.body(job)
            except AssertionError as error:  # it did not come to the fault
                return Outcome(job.ranks, hung=True, code=-1, text=str(error))
            hung = not job.run.wait(LIMIT)
            return outcome_of(job.run, job.folder, job.ranks, hung, fault or fault_times(job.folder))

    def try_fix(self, job, outcome):
        """As the diagnosis says, and nothing else; not tried where it names nothing that can be done by itself."""
        outcome.fix = read_fix(outcome.fix_text)
        if self.expected.kind in ("fine", "notice", "orphans"):
            return
        if outcome.fix is None:  # where something must be named, that is a failure
            outcome.fixed = False if NAMES_SOMETHING.search(self.expected.fix) else None
            return
        job.mend()
        with Run(job.folder) as run:
            mended = Job(run, self.files, job.ranks, job.folder, network=job.network, binary=job.binary)
            mended.start_all(apply_fix(outcome.fix, job.started))
            if self.again:
                self.again(mended)
            ended = run.wait(LIMIT)
            outcome.fixed = ended and all(code == 0 for code in run.codes)
            if not outcome.fixed:
                outcome.text += f"\n--- with the fix {outcome.fix}: {run.codes}\n" + run.text


class Job:
    """One job under way."""

    def __init__(self, run, files, ranks, folder, network=None, binary=BINARY, fixes=True):
        self.run, self.files, self.ranks, self.folder, self.network, self.binary = run, files, ranks, folder, network, binary
        self.until_hurt = SOME if fixes else LONG  # steps of a job that is hurt on its way
        self.started = []
        self.undo = []  # called when the row is over
        self.mend = lambda: None  # what a person does beside the job, where the fix says so: plugs a cable in

    @property
    def out(self):
        return self.folder / "out"

    def words(self, steps=SOME, model=None, rows=None, **flags):
        """Of `lockstep sft`."""
        flags = {"per_device_train_batch_size": 1, "save_steps": LONG, "logging_steps": 1, **flags}
        return sft_words(
            model or self.files.model, rows or self.files.rows, flags.pop("output_dir", self.out), steps=steps, **flags
        )

    def verb(self, verb, **flags):
        return [verb, *(word for key, value in flags.items() for word in (f"--{key}", value))]

    def launch(self, words, env=None, before=()):
        """By lockstep's own launcher."""
        return self.start_all([Started(None, (*words, "--nproc", self.ranks), env or {}, tuple(before))])[0]

    def by_hand(self, words_of, env_of=lambda rank: {}, absent=(), before=()):
        """As another launcher starts ranks."""
        common = {
            "WORLD_SIZE": self.ranks,
            "LOCAL_WORLD_SIZE": self.ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
        }
        self.start_all(
            [
                Started(
                    rank,
                    tuple(words_of(rank)),
                    {"RANK": rank, "LOCAL_RANK": rank, **common, **env_of(rank)},
                    tuple(before),
                )
                for rank in range(self.ranks)
                if rank not in absent
            ]
        )
        return now()

    def start_all(self, started):
        self.started = started
        return [self.run.start([*one.before, self.binary, *one.words], env=one.env) for one in started]

    def change_before(self, before):
        self.started = [replace(one, before=tuple(before)) for one in self.started]

    def preload(self, do, at, after=0, times=1, rank=1, once=False):
        """The variables with which `rank` does something at a file that it opens."""
        if not PRELOAD.exists():
            raise Skip(f"{PRELOAD.name} is not built")
        return {
            "LD_PRELOAD": PRELOAD,
            "FAULT_RANK": rank,
            "FAULT_DO": do,
            "FAULT_OPEN": at,
            "FAULT_AFTER": after,
            "FAULT_TIMES": times,
            "FAULT_ONCE": int(once),
            "FAULT_MARK": self.folder / "fault.ns",
        }

    def await_step(self, step=3):
        self.await_line(rf"^step +{step}/")

    def steps_made(self):
        return len(re.findall(r"^step +\d+/", self.run.text, re.M))

    def await_line(self, pattern):
        assert self.run.wait_for(lambda: re.search(pattern, self.run.text, re.M), LIMIT), self.run.text

    def pid_of(self, rank):
        """The process of a rank."""
        for pid in self.run.remaining():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"agent" in file.read().split(b"\0")[1:2]:
                        continue
            except OSError:
                continue
            if rank_of(pid) == rank:
                return pid
        raise AssertionError(f"rank {rank} is not there\n{self.run.text}")

    def agent_pid(self):
        for pid in self.run.remaining():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"agent" in file.read().split(b"\0")[1:2]:
                        return pid
            except OSError:
                continue
        raise AssertionError(f"there is no agent\n{self.run.text}")

    def hit(self, rank, sig):
        return self.send(self.pid_of(rank), sig)

    def send(self, pid, sig):
        """Returns the moment."""
        moment = now()
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            raise AssertionError(f"process {pid} has ended meanwhile\n{self.run.text}") from None
        return moment

    def with_tmpfs(self, place, size, options=""):
        """Words that give what follows a small file system of its own at `place`."""
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            raise Skip("needs root for a small file system of its own")
        place.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o size={size}{options} none "{place}" && exec "$@"'
        return ["unshare", "-m", "sh", "-c", mount, "sh"]
