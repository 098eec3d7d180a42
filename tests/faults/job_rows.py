"""Faults of a real training job on a small model: ranks started by hand where they must differ, else by the launcher."""

import os
import re
import shutil
import signal
import subprocess
import time

from launch_test import free_port
from outcome import LIMIT, Expected, Outcome
from processes import Run
from small_job import make_rows, sft_words
from story import BINARY
from worker_rows import outcome_of

LONG = 100000  # steps: the job must be ended by the roll call


def now():
    return [time.monotonic(), time.time()]


class JobRow:
    """`body(job)` starts and hurts the job, and returns the moment of the fault."""

    def __init__(self, name, summary, expected, body, fix=None):
        self.name, self.summary, self.expected, self.body, self.fix = name, summary, expected, body, fix
        self.cure = "code" if fix else "none"
        self.files = None  # set by the suite

    def run(self, ranks, folder, fixes=True, network=None):
        with Run(folder) as run:
            try:
                fault = self.body(Job(run, self.files, ranks, folder, network=network))
            except Skip as why:
                return Outcome(ranks, skipped=str(why))
            except AssertionError as error:  # it did not come to the fault
                return Outcome(ranks, hung=True, code=-1, text=str(error))
            hung = not run.wait(LIMIT)
            outcome = outcome_of(run, folder, ranks, hung, fault)
        if fixes and self.fix:
            mended = folder / "fixed"
            mended.mkdir()
            with Run(mended) as run:
                self.fix(Job(run, self.files, ranks, mended, before=folder))
                ended = run.wait(LIMIT)
                outcome.fixed = ended and all(code == 0 for code in run.codes)
                if not outcome.fixed:
                    outcome.text += f"\n--- with the fix: {run.codes}\n" + run.text
        return outcome


class Skip(Exception):
    """What this machine cannot do."""


class Job:
    """One job under way."""

    def __init__(self, run, files, ranks, folder, before=None, network=None):
        self.run, self.files, self.ranks, self.folder = run, files, ranks, folder
        self.before, self.network = before, network

    @property
    def out(self):
        return self.folder / "out"

    def words(self, steps=LONG, model=None, rows=None, **flags):
        flags = {"per_device_train_batch_size": 1, "save_steps": LONG, "logging_steps": 1, **flags}
        return sft_words(
            model or self.files.model, rows or self.files.rows, flags.pop("output_dir", self.out), steps=steps, **flags
        )

    def launch(self, words, env=None, before=()):
        return self.run.start([*before, BINARY, *words, "--nproc", self.ranks], env=env)

    def by_hand(self, words_of, env_of=lambda rank: {}, absent=(), before=()):
        port = free_port()
        for rank in range(self.ranks):
            if rank in absent:
                continue
            env = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": self.ranks,
                "LOCAL_WORLD_SIZE": self.ranks,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                **env_of(rank),
            }
            self.run.start([*before, BINARY, *words_of(rank)], env=env)
        return now()

    def await_step(self, step=3):
        assert self.run.wait_for(lambda: re.search(rf"^step +{step}/", self.run.text, re.M), LIMIT), self.run.text

    def pid_of(self, rank):
        """The process of a rank, by its environment."""
        for pid in self.run.remaining():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"agent" in file.read().split(b"\0")[1:2]:
                        continue
            except OSError:
                continue
            if f"RANK={rank}".encode() in words:
                return pid
        raise AssertionError(f"rank {rank} is not there\n{self.run.text}")


# ---- Ranks that do not have the same in hand.


def other_model(change):
    def body(job):
        return job.by_hand(lambda rank: job.words(model=job.files.models[change] if rank == 1 else None))

    return body


def same_for_all(job):
    job.by_hand(lambda rank: job.words(steps=4))


def other_dtype(job):
    return job.by_hand(lambda rank: job.words(torch_dtype="bfloat16" if rank == 1 else "float32"))


def other_data(job):
    other = make_rows(job.folder, count=30, images=False, name="other.jsonl")
    return job.by_hand(lambda rank: job.words(rows=other if rank == 1 else None))


def copied_data(job, corrupt):
    """A copy of rows and pictures for each rank; the rows are the same."""
    folders = []
    for rank in range(job.ranks):
        folder = job.folder / f"data{rank}"
        folder.mkdir()
        shutil.copy(job.files.rows, folder)
        for image in job.files.folder.glob("*.png"):
            shutil.copy(image, folder)
        folders.append(folder)
    if corrupt:
        for image in folders[1].glob("*.png"):
            image.write_bytes(image.read_bytes()[:40])
    return folders


def corrupt_image(job):
    folders = copied_data(job, corrupt=True)
    return job.by_hand(lambda rank: job.words(rows=folders[rank] / "rows.jsonl", strict="true"))


def corrupt_image_skipped(job):
    folders = copied_data(job, corrupt=False)
    job.by_hand(lambda rank: job.words(rows=folders[rank] / "rows.jsonl", strict="true", steps=4))


def nan_gradient(job):
    rows = job.files.rows_with_one_image(job.folder, at=3 * job.ranks + 1, count=8 * job.ranks)
    job.launch(job.words(rows=rows, model=job.files.models["infinite_weight"], dataset_shuffle="false"))
    job.await_step(3)
    return now()


def nan_mended(job):
    rows = job.files.rows_with_one_image(job.folder, at=3 * job.ranks + 1, count=8 * job.ranks)
    job.launch(job.words(rows=rows, dataset_shuffle="false", steps=6))


# ---- Ranks that are not there, or believe in another world.


def absent_rank(job):
    return job.by_hand(lambda rank: job.words(patience="600,start=14"), absent=(1,))


def other_world_size(job):
    return job.by_hand(
        lambda rank: job.words(),
        lambda rank: {"WORLD_SIZE": job.ranks + 1, "LOCAL_WORLD_SIZE": job.ranks + 1} if rank == 1 else {},
    )


# ---- Disks, clocks, launchers.


def full_disk(job):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        raise Skip("needs root for a small file system of its own")
    job.out.mkdir()
    job.launch(
        job.words(save_steps=5, force="true"),  # it would be refused before it begins
        before=["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=2m none "{job.out}" && exec "$@"', "sh"],
    )
    job.run.wait_for(lambda: re.search(r"^step +4/", job.run.text, re.M), LIMIT)
    return now()


def enough_disk(job):
    job.launch(job.words(save_steps=5, steps=6))


def kill_while_saving(job):
    job.launch(job.words(save_steps=2, save_total_limit=2))
    assert job.run.wait_for(lambda: "checkpoint-4" in job.run.text, LIMIT), job.run.text
    pid = job.pid_of(1)
    seen = {path.name for path in job.out.iterdir()}
    job.run.wait_for(lambda: any(path.name not in seen and ".tmp-" in path.name for path in job.out.iterdir()), 10)
    os.kill(pid, signal.SIGKILL)
    return now()


def resumed(job):
    job.launch(job.words(steps=60, output_dir=job.before / "out", resume_from_checkpoint="true"))


def launcher_killed(job):
    process = job.launch(job.words())
    job.await_step()
    os.kill(process.pid, signal.SIGKILL)
    return now()


def clock_jump(job):
    library = BINARY.parent / "libclock_jump.so"
    if not library.exists():
        raise Skip(f"{library.name} is not built")
    return job.by_hand(lambda rank: job.words(steps=40), lambda rank: {"LD_PRELOAD": library} if rank == 1 else {})


def mixed_rows(job):
    job.launch(job.words(steps=12, per_device_train_batch_size=2))
    return now()


def job_rows():
    return [
        JobRow(
            "other_weights",
            "another model folder: one weight differs",
            Expected("facts", label="model", place="rank 1", says="model", fix="same model folder", bar="start"),
            other_model("other_weights"),
            same_for_all,
        ),
        JobRow(
            "wider_model",
            "another model folder: a wider layer",
            Expected("facts", label="model|plan", place="rank 1", says="model|plan", fix="same", bar="start"),
            other_model("wider"),
            same_for_all,
        ),
        JobRow(
            "deeper_model",
            "another model folder: one layer more",
            Expected("facts", label="model|plan", place="rank 1", says="model|plan", fix="same", bar="start"),
            other_model("one_layer_more"),
            same_for_all,
        ),
        JobRow(
            "other_dtype",
            "another --torch_dtype",
            Expected("facts", label="plan|dtype", place="rank 1", says="plan|dtype", fix="same", bar="start"),
            other_dtype,
            same_for_all,
        ),
        JobRow(
            "other_data",
            "another data file",
            Expected("facts", label="data set", place="rank 1", says="data set", fix="same data files", bar="start"),
            other_data,
            same_for_all,
        ),
        JobRow(
            "corrupt_image",
            "a broken image, with --strict true",
            Expected("error", place=r"rows\.jsonl:\d+", says=r"\.png", fix=".", bar="start"),
            corrupt_image,
            corrupt_image_skipped,
        ),
        JobRow(
            "nan_gradient",
            "a gradient that is not a number, from one rank's image",
            Expected("error", place=".", says="not finite|nan", label=".", fix=".", bar="death"),
            nan_gradient,
            nan_mended,
        ),
        JobRow(
            "absent_rank",
            "a rank that never starts",
            Expected("absent", place="meeting", says="did not come", fix="start the missing ranks", bar="start"),
            absent_rank,
            same_for_all,
        ),
        JobRow(
            "other_world_size",
            "another WORLD_SIZE",
            Expected("facts", label="world size", place="rank 1", says="world size", fix="WORLD_SIZE", bar="start"),
            other_world_size,
            same_for_all,
        ),
        JobRow(
            "full_disk",
            "the disk is full while a checkpoint is saved",
            Expected("error", place=".", says="[Nn]o space left", fix=".", bar="start", culprit=0),
            full_disk,
            enough_disk,
        ),
        JobRow(
            "kill_while_saving",
            "SIGKILL while a checkpoint is saved",
            Expected(
                "death", op=".", place="sav|after step", says="SIGKILL", fix="--resume_from_checkpoint", bar="death"
            ),
            kill_while_saving,
            resumed,
        ),
        JobRow("launcher_killed", "SIGKILL of the launcher: no rank stays", Expected("orphans"), launcher_killed),
        JobRow("clock_jump", "a wall clock an hour ahead (harmless)", Expected("fine"), clock_jump),
        JobRow("mixed_rows", "text and images, uneven rows (harmless here)", Expected("fine"), mixed_rows),
    ]
