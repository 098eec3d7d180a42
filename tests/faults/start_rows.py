"""Ranks that do not have the same in hand, are not there, or do not meet."""

import shutil
import socket

from job import JobRow, now
from outcome import Expected
from small_job import make_rows

# ---- Ranks that do not have the same in hand.


def other_model(change):
    return lambda job: job.by_hand(lambda rank: job.words(model=job.files.models[change] if rank == 1 else None))


def other_flag(**flags):
    return lambda job: job.by_hand(lambda rank: job.words(**(flags if rank == 1 else {})))


def other_data(job):
    other = make_rows(job.folder, count=30, images=False, name="other.jsonl")
    return job.by_hand(lambda rank: job.words(rows=other if rank == 1 else None))


def fewer_rows(job):
    """A copy that was not finished: the last rows are missing."""
    short = job.files.folder / f"short-{job.ranks}.jsonl"
    short.write_text("".join(job.files.rows.read_text().splitlines(keepends=True)[:40]))
    return job.by_hand(lambda rank: job.words(rows=short if rank == 1 else None))


def other_verb(job):
    other = job.verb("eval", model=job.files.model, val_dataset=job.files.rows)
    return job.by_hand(lambda rank: other if rank == 1 else job.words())


def other_rows_to_embed(job):
    other = make_rows(job.folder, count=12, images=False, name="other.jsonl")
    return job.by_hand(
        lambda rank: job.verb(
            "embed", model=job.files.model, dataset=other if rank == 1 else job.files.rows, output=job.out
        )
    )


def other_model_to_evaluate(job):
    return job.by_hand(
        lambda rank: job.verb(
            "eval",
            model=job.files.models["other_weights"] if rank == 1 else job.files.model,
            val_dataset=job.files.rows,
            torch_dtype="float32",
        )
    )


# ---- Files that are broken on one rank.


def copied_data(job, spoil):
    """A copy of rows and pictures for each rank; `spoil(image)` meets those of rank 1. The rows are the same."""
    folders = []
    for rank in range(job.ranks):
        folder = job.folder / f"data{rank}"
        folder.mkdir()
        shutil.copy(job.files.rows, folder)
        for image in job.files.folder.glob("*.png"):
            shutil.copy(image, folder)
        folders.append(folder)
    for image in folders[1].glob("*.png"):
        spoil(image)
    return job.by_hand(lambda rank: job.words(rows=folders[rank] / "rows.jsonl", strict="true"))


def corrupt_image(job):
    return copied_data(job, lambda image: image.write_bytes(image.read_bytes()[:40]))


def missing_image(job):
    return copied_data(job, lambda image: image.unlink())


def unreadable_image(job):
    eio = 5
    job.launch(job.words(strict="true"), env=job.preload(f"errno:{eio}", at=".png", after=4, times=1000))


def cut_model(job):
    """Rank 1's copy of the weights was cut short on the way."""
    model = job.folder / "cut"
    shutil.copytree(job.files.model, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return job.by_hand(lambda rank: job.words(model=model if rank == 1 else None))


def no_data(job):
    return job.by_hand(lambda rank: job.words(rows=job.folder / "nowhere.jsonl" if rank == 1 else None))


# ---- Ranks that are not there, or believe in another world.

IN_TIME = "600,start=9"


def absent_rank(job):
    return job.by_hand(lambda rank: job.words(patience=IN_TIME), absent=(1,))


def late_rank(job):
    """Its libraries come from a disk that takes its time."""
    job.launch(job.words(patience=IN_TIME, steps=6), env=job.preload("sleep:14", at="start"))
    return now()


def other_world_size(job):
    return job.by_hand(
        lambda rank: job.words(),
        lambda rank: {"WORLD_SIZE": job.ranks + 1, "LOCAL_WORLD_SIZE": job.ranks + 1} if rank == 1 else {},
    )


def taken_port(job):
    """Another program listens where the ranks want to meet."""
    taken = socket.create_server(("", 0))
    job.undo.append(taken.close)
    port = taken.getsockname()[1]
    return job.by_hand(lambda rank: job.words(patience=IN_TIME), lambda rank: {"MASTER_PORT": port})


def differs(name, summary, fact, fix, body, place="rank 1"):
    return JobRow(name, summary, Expected("facts", label=fact, place=place, says=fact, fix=fix, bar="start"), body)


def start_rows():
    return [
        differs(
            "other_weights",
            "another model folder: one weight differs",
            "model",
            "start rank 1 with --model",
            other_model("other_weights"),
        ),
        differs(
            "wider_model",
            "another model folder: a wider layer",
            "model|plan",
            "start rank 1 with --model",
            other_model("wider"),
        ),
        differs(
            "deeper_model",
            "another model folder: one layer more",
            "model|plan",
            "start rank 1 with --model",
            other_model("one_layer_more"),
        ),
        differs(
            "other_dtype",
            "another --torch_dtype",
            "plan",
            "--torch_dtype float32",
            other_flag(torch_dtype="bfloat16"),
        ),
        differs("other_stage", "another --deepspeed", "plan", "--deepspeed zero3", other_flag(deepspeed="zero1")),
        differs("other_frozen", "--freeze_llm on one rank", "plan", "without --freeze_llm", other_flag(freeze_llm="true")),
        differs("other_seed", "another --seed", "training options", "without --seed", other_flag(seed=7)),
        differs(
            "other_rate",
            "another --learning_rate",
            "training options",
            "--learning_rate 1e-3",
            other_flag(learning_rate="1e-2"),
        ),
        differs(
            "other_batch",
            "another --per_device_train_batch_size",
            "training options",
            "--per_device_train_batch_size 1",
            other_flag(per_device_train_batch_size=2),
        ),
        differs(
            "other_accumulation",
            "another --gradient_accumulation_steps",
            "training options",
            "--gradient_accumulation_steps 1",
            other_flag(gradient_accumulation_steps=2),
        ),
        differs("other_steps", "another --max_steps", "training options", "--max_steps", other_flag(steps=9)),
        differs("other_data", "another data file", "data set", "start rank 1 with --dataset", other_data),
        differs("fewer_rows", "a data file of which 8 rows are missing", "data set", "--dataset", fewer_rows),
        differs("other_rows_to_embed", "embed: other rows on one rank", "rows", "--dataset", other_rows_to_embed),
        differs(
            "other_model_to_evaluate", "eval: another model on one rank", "model", "--model", other_model_to_evaluate
        ),
        differs("other_verb", "one rank runs eval, the others sft", "command", "start the same", other_verb),
        differs("other_world_size", "another WORLD_SIZE", "world size", "with LOCAL_WORLD_SIZE=", other_world_size),
        JobRow(
            "corrupt_image",
            "a broken image, with --strict true",
            Expected("error", place=r"rows\.jsonl:\d+", says=r"\.png", fix="--strict false", bar="start"),
            corrupt_image,
        ),
        JobRow(
            "missing_image",
            "images that one rank does not have, with --strict true",
            Expected("error", place=r"rows\.jsonl:\d+", says=r"\.png: no such file", fix="--strict false", bar="start"),
            missing_image,
        ),
        JobRow(
            "unreadable_image",
            "a disk that answers EIO, with --strict true",
            Expected("error", place=r"rows\.jsonl:\d+", says=r"\.png.*error", fix="--strict false", bar="death"),
            unreadable_image,
        ),
        JobRow(
            "cut_model",
            "weights that were cut short on one rank",
            Expected("error|facts", place="rank 1", says="model|safetensors", fix="again", bar="start"),
            cut_model,
        ),
        JobRow(
            "no_data",
            "a data file that one rank does not have",
            Expected("error", place=r"nowhere\.jsonl", says="no such file", fix=".", bar="start"),
            no_data,
        ),
        JobRow(
            "absent_rank",
            "a rank that never starts",
            Expected("absent", place="meeting", says="did not come", fix="start rank 1 too", bar="start"),
            absent_rank,
        ),
        JobRow(
            "late_rank",
            "a rank that needs longer to start than it may",
            Expected("absent", place="rank 1", says="did not come", fix="--patience start=", bar="start"),
            late_rank,
        ),
        JobRow(
            "taken_port",
            "another program listens at MASTER_PORT",
            Expected("error", place="meeting point", says="another program", fix="MASTER_PORT=", bar="start", culprit=0, watched=False),
            taken_port,
        ),
    ]
