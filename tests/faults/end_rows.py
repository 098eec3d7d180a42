"""Ranks of a real job that end: by signals, by themselves, for want of memory; in training, saving, evaluating, embedding."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from job import LONG, MORE, JobRow, Skip, now
from outcome import Expected

GOES_ON = "--resume_from_checkpoint auto"
AGAIN = "give the same command again"

# ---- Signals.


def struck(sig, rank=1):
    """With checkpoints to go on from."""

    def body(job):
        job.launch(job.words(steps=job.until_hurt, save_steps=2, save_total_limit=2))
        job.await_step(3)
        return job.hit(rank, sig)

    return body


def struck_elsewhere(job):
    """Ranks of another launcher: the watcher is a process of its own."""
    job.by_hand(lambda rank: job.words(steps=job.until_hurt))
    job.await_step(3)
    return job.hit(1, signal.SIGKILL)


def struck_while_loading(job):
    """In the middle of opening the weights."""
    job.launch(job.words(), env=job.preload("abort", at="model.safetensors", once=True))


def kill_while_saving(job):
    job.launch(job.words(steps=job.until_hurt, save_steps=2, save_total_limit=2))
    job.await_line("checkpoint-4")
    pid = job.pid_of(1)
    seen = {path.name for path in job.out.iterdir()}
    job.run.wait_for(lambda: any(path.name not in seen and ".tmp-" in path.name for path in job.out.iterdir()), 10)
    return job.send(pid, signal.SIGKILL)


def stop_while_evaluating(job):
    """The evaluation of a training run: its rows take their time on rank 1, so that it is met there."""
    job.launch(
        job.words(val_dataset=job.files.rows, eval_strategy="steps", eval_steps=4, steps=8),
        env=job.preload("sleep:0.05", at=".png", times=LONG),
    )
    job.await_step(4)
    time.sleep(0.3)
    return job.hit(1, signal.SIGKILL)


# ---- Other verbs.


def slowly(job):
    """So that it is met before it is done."""
    return job.preload("sleep:0.3", at=".png", after=3, times=LONG)


def struck_in(words_of, sig=signal.SIGKILL):
    def body(job):
        job.launch(words_of(job), env=slowly(job))
        assert job.run.wait_for(lambda: (job.folder / "fault.ns").exists(), 40), job.run.text
        return job.hit(1, sig)

    return body


def evaluation(job, **more):
    return job.verb("eval", model=job.files.model, val_dataset=job.files.rows, torch_dtype="float32", **more)


def embedding(job, **more):
    return job.verb(
        "embed", model=job.files.model, dataset=job.files.rows, output=job.out, torch_dtype="float32", **more
    )


def answering(job, **more):
    return job.verb(
        "infer",
        model=job.files.model,
        val_dataset=job.files.rows,
        result_path=job.folder / "answers.jsonl",
        torch_dtype="float32",
        max_new_tokens=4,
        **more,
    )


# ---- By itself.


def ends_at_an_image(do):
    """As a library does that calls exit."""
    return lambda job: job.launch(job.words(), env=job.preload(do, at=".png", after=9, once=True)) and None


def ends_at_start(job):
    job.launch(job.words(), env=job.preload("exit:9", at="start", once=True))


# ---- Memory.


def no_more_memory(job):
    """Rank 1 may have hardly more than it has."""
    job.launch(job.words(steps=15 * job.until_hurt))  # when it asks for more is not known: within seconds
    job.await_step(3)
    pid = job.pid_of(1)
    held = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    moment = now()
    subprocess.run(["prlimit", "--pid", str(pid), f"--as={held}"], check=True)
    told = lambda: re.search(": the job was ended: |: error: ", job.run.text) or any(code is not None for code in job.run.codes)
    if not job.run.wait_for(told, 20):
        raise Skip("a job that asks for more memory than it has")
    return moment


def removed(group):
    """The kernel counts those that have just ended for a moment longer."""
    for _ in range(50):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.1)


def kernel_has_no_more_memory(job):
    """Another program takes what is left in the job's control group: the kernel kills rank 1, which it is told to prefer."""
    group = Path("/sys/fs/cgroup/memory") / f"lockstep-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        raise Skip(f"a control group for memory of its own: {error.strerror}") from None
    job.undo.append(lambda: removed(group))
    enter = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    job.launch(job.words(steps=LONG), before=["sh", "-c", enter, "sh"])
    job.await_step(3)
    Path(f"/proc/{job.pid_of(1)}/oom_score_adj").write_text("1000")
    moment = now()
    used = int((group / "memory.usage_in_bytes").read_text())
    (group / "memory.limit_in_bytes").write_text(str(used + (32 << 20)))
    takes = "import time; held = bytearray(64 << 20); time.sleep(5)"
    spared = 'echo -1000 > /proc/self/oom_score_adj && '
    other = subprocess.Popen(["sh", "-c", spared + enter, "sh", sys.executable, "-c", takes])
    job.undo.insert(0, lambda: (other.kill(), other.wait()))
    if not job.run.wait_for(lambda: "was killed" in job.run.text, 5):
        raise Skip("a kernel that holds control groups to their memory")
    return moment


# ---- Launchers and programs beside the job.


def launcher_killed(job):
    process = job.launch(job.words(steps=LONG))
    job.await_step()
    os.kill(process.pid, signal.SIGKILL)
    return now()


def agent_killed(job):
    job.by_hand(lambda rank: job.words(steps=MORE))
    job.await_step(3)
    return job.send(job.agent_pid(), signal.SIGKILL)


def program(job, text):
    """A metric program that notes when it begins, as the fault then does."""
    path = job.folder / "measure.py"
    noted = f"import time\nopen({str(job.folder / 'fault.ns')!r}, 'w').write(f'{{time.monotonic_ns()}} {{time.time_ns()}}')\n"
    path.write_text("#!/usr/bin/env python3\n" + noted + text)
    path.chmod(0o755)
    return path


def metric(text, **flags):
    def body(job):
        words = evaluation(
            job, predict_with_generate="true", max_new_tokens=4, metric=program(job, text), **flags
        )
        job.launch(words)

    return body


def ended(name, summary, says, body, fix=GOES_ON, place="rank", op=".", kind="death", culprit=1, bar="death"):
    return JobRow(name, summary, Expected(kind, op=op, place=place, says=says, fix=fix, culprit=culprit, bar=bar), body)


def end_rows():
    killed = r"was killed \(SIGKILL\)"
    return [
        ended("sigkill", "SIGKILL", killed, struck(signal.SIGKILL)),
        ended(
            "sigkill_rank_0",
            "SIGKILL of rank 0, which hosts the meeting point",
            killed,
            struck(signal.SIGKILL, rank=0),
            culprit=0,
        ),
        ended("sigkill_elsewhere", "SIGKILL of a rank of another launcher", r"rank 1 was killed \(SIGKILL\)", struck_elsewhere),
        ended("sigstop", "SIGSTOP", "SIGSTOP", struck(signal.SIGSTOP), kind="stopped", bar="stopped"),
        ended(
            "sigstop_rank_0",
            "SIGSTOP of rank 0",
            "SIGSTOP",
            struck(signal.SIGSTOP, rank=0),
            kind="stopped",
            bar="stopped",
            culprit=0,
        ),
        ended("sigsegv", "a wild pointer (SIGSEGV)", r"crashed \(SIGSEGV\)", struck(signal.SIGSEGV)),
        ended("sigbus", "a broken mapped file (SIGBUS)", r"crashed \(SIGBUS\)", struck(signal.SIGBUS)),
        ended("abort", "abort() in a library", r"crashed \(SIGABRT\)", ends_at_an_image("abort"), fix=GOES_ON),
        ended("exit_0", "a library ends the process with code 0", "exit code 0", ends_at_an_image("exit:0")),
        ended("exit_9", "a library ends the process with code 9", "exit code 9", ends_at_an_image("exit:9")),
        ended(
            "dies_before_joining",
            "ends with code 9 before it meets the others",
            "before it joined",
            ends_at_start,
            fix="its own lines",
            op="",
            bar="start",
        ),
        ended(
            "abort_while_loading", "abort() while the weights are opened", "SIGABRT", struck_while_loading, place="rank 1"
        ),
        ended("kill_while_saving", "SIGKILL while a checkpoint is saved", killed, kill_while_saving, place="sav|after step"),
        ended(
            "kill_while_evaluating", "SIGKILL in the evaluation of a training", killed, stop_while_evaluating, place=r"eval|after step 4"
        ),
        ended("kill_eval", "eval: SIGKILL", killed, struck_in(evaluation), fix=AGAIN),
        ended("kill_embed", "embed: SIGKILL", killed, struck_in(embedding), fix=AGAIN),
        ended("kill_infer", "infer: SIGKILL", killed, struck_in(answering), fix=AGAIN),
        ended(
            "stop_embed", "embed: SIGSTOP", "SIGSTOP", struck_in(embedding, signal.SIGSTOP), fix=AGAIN, kind="stopped",
            bar="stopped",
        ),
        ended(
            "out_of_memory",
            "out of memory (an allocation fails)",
            "memory|SIGABRT",  # where a thread asks that nobody can throw to
            no_more_memory,
            fix=f"less|{GOES_ON}",
            kind="error|death",
            op="",
            bar="none",  # nobody knows when it asks for more
        ),
        ended(
            "killed_for_memory",
            "the kernel has no more memory and kills a rank",
            "memory is full",
            kernel_has_no_more_memory,
            fix="less memory",
        ),
        JobRow(
            "metric_too_slow",
            "eval: a metric program that takes longer than it may",
            Expected("error", place="measure", says="still running", fix="--metric_timeout", culprit=0),
            metric("time.sleep(6)\nprint('{\"x\": 1}')\n", metric_timeout=3),
        ),
        JobRow(
            "metric_dies",
            "eval: a metric program that dies",
            Expected("error", place="measure", says="signal 9", fix=".", culprit=0),
            metric("import os\nos.kill(os.getpid(), 9)\n"),
        ),
        JobRow("launcher_killed", "SIGKILL of the launcher: no rank stays", Expected("orphans"), launcher_killed),
        JobRow("agent_killed", "SIGKILL of the watcher of another launcher's ranks", Expected("fine"), agent_killed),
    ]
