"""The faults of fault_worker as rows: what only a script can do to a job, calls that differ above all. Their mending is code."""

import json
import os
import subprocess
import time
from pathlib import Path

from outcome import LIMIT, Expected, Outcome, read_diagnosis
from processes import Run
from story import BINARY, environment

WORKER = Path(os.environ.get("LOCKSTEP_FAULT_WORKER") or BINARY.parent / "fault_worker")

STRICT_RANKS = 3


def fault_times(folder):
    """The moment of the fault by the steady and the wall clock; None when it never came."""
    path = Path(folder) / "fault.ns"
    return [int(word) / 1e9 for word in path.read_text().split()] if path.exists() else None


def outcome_of(run, folder, ranks, hung, fault=None):
    """Reads what a run has left behind; call it when all have ended. `fault`: both clocks at the injection."""
    gone = time.monotonic()
    fault = fault or fault_times(folder)
    found, written = read_diagnosis(folder, run.text)
    codes = [code for code in run.codes if code]
    outcome = Outcome(
        ranks=ranks,
        hung=hung,
        wrong="WRONG rank" in run.text,
        left=len(run.remaining()),
        code=-1 if hung else (codes[0] if codes else 0),
        text=run.text,
        diagnosis=found,
    )
    if fault is None:
        return outcome
    said = min((m for m in (run.moment_of(": the job was ended: "), run.moment_of(": error: ")) if m), default=None)
    outcome.gone = gone - fault[0]
    if written is not None:
        outcome.dated = True
        outcome.ended = max(0.0, written - fault[1])  # files are dated by a coarse clock
    elif found and said is not None:
        outcome.ended = said - fault[0]
    noticed = run.moment_of(": notice: ", since=fault[0])
    outcome.named = outcome.ended if noticed is None else noticed - fault[0]
    return outcome


class WorkerRow:
    """One fault of fault_worker."""

    runs_lockstep = False

    def __init__(self, listed):
        self.transport = "auto"
        self.name, self.summary = listed["name"], listed["summary"]
        self.expected = Expected(
            **{
                key: listed[key]
                for key in ("kind", "op", "label", "place", "says", "fix", "culprit", "bar", "patience")
            }
        )

    def words(self, ranks, folder, *more):
        return [WORKER, "--fault", self.name, "--nproc", ranks, "--out", folder, "--transport", self.transport, *more]

    def run(self, ranks, folder, fixes=True):
        with Run(folder) as run:
            run.start(self.words(ranks, folder))
            hung = not run.wait(LIMIT)
            outcome = outcome_of(run, folder, ranks, hung)
        if fixes and self.expected.bar == "mismatch" and ranks == STRICT_RANKS:
            strict = folder / "strict"
            strict.mkdir()
            with Run(strict) as run:
                run.start(self.words(ranks, strict, "--guard", "strict"))
                outcome.strict_wrong = not run.wait(LIMIT) or "WRONG" in run.text or run.codes == [0]
        return outcome


def worker_rows():
    listed = subprocess.run([WORKER, "--list"], env=environment(), capture_output=True, text=True, check=True).stdout
    return [WorkerRow(json.loads(line)) for line in listed.splitlines()]
