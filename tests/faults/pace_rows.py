"""A real job that is slow or stands still, and places that are full: disks, shared memory. And what only looks like a fault."""

import os
import re
import signal
import threading
import time

from job import LONG, JobRow, Skip, now
from outcome import LIMIT, Expected
from story import BINARY

PATIENCE = 5
LONGER = 8  # what the data take, once, is allowed by the patience that the diagnosis names

# ---- Standing still.


def stalled(words_of, after=1):
    """Reading one image takes longer than the patience."""

    def body(job):
        job.launch(words_of(job), env=job.preload(f"sleep:{LONGER}", at=".png", after=after))

    return body


def training(job, **more):
    return job.words(patience=PATIENCE, dataloader_num_workers=1, **more)


def embedding(job):
    return job.verb(
        "embed", model=job.files.model, dataset=job.files.rows, output=job.out, torch_dtype="float32", patience=PATIENCE
    )


def evaluation(job):
    return job.verb(
        "eval", model=job.files.model, val_dataset=job.files.rows, torch_dtype="float32", patience=PATIENCE
    )


def slow_images(job):
    each = 0.3 + 0.15 * job.ranks  # the more ranks share these cores, the longer a step takes, behind which it is hidden
    job.launch(job.words(steps=20), env=job.preload(f"sleep:{each}", at=".png", times=LONG))


def slow_process(job):
    """Another program takes the processor away from rank 1, again and again."""
    job.launch(job.words(steps=24))
    job.await_step(2)
    pid, moment = job.pid_of(1), now()

    def pulse():
        while True:
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.05 * (job.ranks + 1))
                made = job.steps_made()
                os.kill(pid, signal.SIGCONT)
                job.run.wait_for(lambda: job.steps_made() > made, 0.03)  # a quick machine makes many steps in that time
            except OSError:
                return

    threading.Thread(target=pulse, daemon=True).start()
    return moment


# ---- Full places.


def full_disk(job):
    """Room for two checkpoints and not for the third."""
    job.launch(
        job.words(save_steps=5, force="true", steps=30),  # it would be refused before it begins
        before=job.with_tmpfs(job.out, "%dk" % (2.6 * job.files.checkpoint_bytes(job.ranks) / 1024)),
    )
    job.run.wait_for(lambda: re.search(r"^step +14/", job.run.text, re.M), LIMIT)
    return now()


def full_disk_of_rows(job):
    """Room for a few finished rows."""
    job.launch(
        job.verb("embed", model=job.files.model, dataset=job.files.rows, output=job.out / "e", torch_dtype="float32",
                 force="true"),  # it would be refused before it begins
        before=job.with_tmpfs(job.out, "12k"),
    )
    job.mend = lambda: job.change_before(job.with_tmpfs(job.out, "12m"))  # "make room"
    return now()


def read_only_output(job):
    job.launch(job.words(), before=job.with_tmpfs(job.out, "1m", ",ro"))
    return now()


def no_shared_memory(job):
    """A container with the usual 64 KiB too few."""
    shm = job.folder / "shm"
    before = job.with_tmpfs(shm, "16k")
    before[4] = before[4].replace(' && exec "$@"', f' && mount --bind "{shm}" /dev/shm && exec "$@"')
    job.launch(job.words(transport="shm", steps=6), before=before)
    return now()


# ---- What only looks like a fault.


def clock_jump(job):
    library = BINARY.parent / "libclock_jump.so"
    if not library.exists():
        raise Skip(f"{library.name} is not built")
    return job.by_hand(lambda rank: job.words(steps=40), lambda rank: {"LD_PRELOAD": library} if rank == 1 else {})


def mixed_rows(job):
    job.launch(job.words(steps=12, per_device_train_batch_size=2))
    return now()


def nan_gradient(job):
    rows = job.files.rows_with_one_image(job.folder, at=3 * job.ranks + 1, count=8 * job.ranks)
    job.launch(job.words(rows=rows, model=job.files.models["infinite_weight"], dataset_shuffle="false"))
    job.await_step(3)
    return now()


def stall(name, summary, body, label):
    return JobRow(
        name,
        summary,
        Expected(
            "stall",
            op=".",
            label=label,
            place=r"rows\.jsonl:\d+",
            says="busy elsewhere",
            fix="--patience data=60",
            bar="stall",
            patience=PATIENCE,
        ),
        body,
    )


def pace_rows():
    return [
        stall("stalled_data", "loading an image does not come back in time", stalled(training, after=6), "step contract"),
        stall("stalled_eval", "eval: loading an image does not come back in time", stalled(evaluation), "."),
        stall("stalled_embed", "embed: loading an image does not come back in time", stalled(embedding), "."),
        JobRow(
            "slow_data",
            "a rank whose images come slowly",
            Expected("notice", says=r"rank 1 is [0-9.]+x slower than the others in data", bar="straggler"),
            slow_images,
        ),
        JobRow(
            "slow_process",
            "a rank that gets a little of the processor's time",
            Expected("notice", says=r"rank 1 is [0-9.]+x slower than the others", bar="straggler"),
            slow_process,
        ),
        JobRow(
            "nan_gradient",
            "a gradient that is not a number, from one rank's image",
            Expected("error", place=".", says="not finite|nan", label=".", fix=".", bar="death"),
            nan_gradient,
        ),
        JobRow(
            "full_disk",
            "the disk is full while a checkpoint is saved",
            Expected("error", place=".", says="[Nn]o space left", fix=r"--save_total_limit \d", bar="start", culprit=-2),
            full_disk,
        ),
        JobRow(
            "full_disk_of_rows",
            "embed: the disk is full while finished rows are kept",
            Expected("error", place=".", says="[Nn]o space left", fix="make room", bar="start", culprit=-2),
            full_disk_of_rows,
        ),
        JobRow(
            "read_only_output",
            "an output folder that cannot be written",
            Expected("error", place=".", says="may not write", fix="can be written", bar="start", culprit=-2),
            read_only_output,
        ),
        JobRow(
            "no_shared_memory",
            "no room in /dev/shm, with --transport shm",
            Expected("error", place=".", says="/dev/shm", fix="--transport gloo", bar="start", culprit=-2),
            no_shared_memory,
        ),
        JobRow("clock_jump", "a wall clock an hour ahead (harmless)", Expected("fine"), clock_jump),
        JobRow("mixed_rows", "text and images, uneven rows (harmless here)", Expected("fine"), mixed_rows),
    ]
