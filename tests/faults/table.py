"""docs/faults.md: what each fault was, how soon it was told and how well, beside what PyTorch alone does with it."""

import os
import subprocess
import time
from pathlib import Path

from outcome import BARS, GONE

# Of three ranks with torch.distributed (Gloo) under torchrun, PyTorch 2.11, default timeouts, one run each.
PLAIN_TORCH = {
    "exit_0": "error after 2.7 s; torchrun blames rank 0",
    "finishes_early": "error after 2.7 s; torchrun blames rank 0",
    "missing_image": "own traceback; the others “closed by peer”",
    "raises_then_barrier": "hangs; the error is never printed",
    "sigkill": "error; torchrun names the rank",
    "sigstop": "hangs",
    "stalled_data": "hangs",
    "shape_4_6": "wrong numbers, then hangs",
    "shape_200k_300k": "aborts; bytes only",
    "shape_2x3_3x2": "silently wrong",
    "dtype_f64_f32": "aborts; bytes only",
    "dtype_i32_f32": "silently wrong",
    "dtype_i64_f32": "silently wrong",
    "all_gather_all_reduce": "hangs",
    "equal_calls_swapped": "silently wrong",
    "kinds_swapped": "hangs",
    "sum_max": "silently wrong",
    "tuple_2_1": "wrong numbers, then hangs",
    "uneven_first_dim": "aborts; bytes only",
    "none_tensor": "wrong numbers, then hangs",
    "broadcast_root": "hangs",
    "layer_skipped": "DDP: error by parameter number; ZeRO-3: hangs",
    "layer_skipped_in_turn": "DDP: error by parameter number",
    "absent_rank": "hangs",
    "other_world_size": "hangs",
    "nan_gradient": "silently wrong",
    "deeper_model": "DDP: error, numbers only; ZeRO-3: hangs",
    "wider_model": "aborts; bytes only",
    "out_of_memory": "own traceback; the others “closed by peer”",
    "out_of_memory_caught": "hangs",
    "all_reduce_skipped": "wrong numbers, then hangs",
    "gather_64_mib": "ok",
    "barrier_missing": "hangs",
    "slow_compute": "ok; nobody says so",
    "wrong_group": "wrong numbers, then hangs",
}
RATES = {"culprit": 0.95, "op": 1.0, "name": 0.9, "place": 0.95, "advice": 0.9, "fix": 0.8}
BAR_TEXTS = {
    "mismatch": "a mismatch, after the first side has called",
    "death": "an end of a rank: death, exit, error",
    "stopped": "a stopped process",
    "deadlock": "ranks that wait for each other",
    "stall": "a stall, by a notice",
    "straggler": "a slow rank, by a notice",
    "start": "a difference or an absence at the start (from the last start)",
    "network": "a cut network",
}


def longest(values):
    values = [value for value in values if value is not None]
    return max(values) if values else None


def rate(results, check, least_ranks=2):
    asked = [checks[check] for _, ranks, _, checks in results if ranks >= least_ranks and checks.get(check) is not None]
    return sum(asked), len(asked)


def summary(results, slack=1):
    """(what, bar, measured, whether it holds) of everything that has a bar."""
    ran = [one for one in results if not one[2].skipped]
    lines = [
        ("hangs", "0", str(sum(not c["no hang"] for *_, c in ran)), all(c["no hang"] for *_, c in ran)),
        (
            "processes left behind",
            "0",
            str(sum(not c["nobody left"] for *_, c in ran)),
            all(c["nobody left"] for *_, c in ran),
        ),
        (
            "silently wrong",
            "0",
            str(sum(not c["not silently wrong"] for *_, c in ran)),
            all(c["not silently wrong"] for *_, c in ran),
        ),
        (
            "recognised as what it was",
            "all",
            "{} of {}".format(*rate(ran, "detected")),
            all(c["detected"] for *_, c in ran),
        ),
    ]
    for check, bar in RATES.items():
        least = 3 if check == "culprit" else 2
        good, asked = rate(ran, check, least)
        if asked:
            text = {
                "culprit": "culprit right (3 and more ranks)",
                "op": "operation right",
                "name": "tensor or field named",
                "place": "place right",
                "advice": "what to do is said",
                "fix": "the fix, done as its words say with the fault still there, works",
            }[check]
            lines.append((text, f"≥ {100 * bar:.0f} %", f"{good} of {asked}", good >= bar * asked))
    for bar, seconds in BARS.items():
        times = [
            outcome.named
            for row, _, outcome, checks in ran
            if row.expected.bar == bar and checks.get("in time") is not None
        ]
        if times:
            worst = longest(times)
            missing = any(t is None for t in times)
            lines.append(
                (
                    f"{BAR_TEXTS[bar]}: named",
                    f"≤ {seconds:g} s",
                    "never" if missing else f"≤ {worst:.2f} s",
                    not missing and worst <= slack * seconds,
                )
            )
    stalls = [
        outcome.ended - row.expected.patience
        for row, _, outcome, _ in ran
        if row.expected.bar == "stall" and outcome.ended is not None and outcome.dated
    ]
    if stalls:
        lines.append(
            (
                "a stall: the job ended, after the patience",
                "≤ 1.5 s",
                f"{max(stalls):.2f} s",
                max(stalls) <= slack * 1.5,
            )
        )
    gone = [checks["gone in time"] for *_, checks in ran if checks.get("gone in time") is not None]
    lines.append(("all processes gone", f"≤ {GONE:g} s", f"{sum(gone)} of {len(gone)}", all(gone)))
    strict = [outcome.strict_wrong for *_, outcome, _ in ran if outcome.strict_wrong is not None]
    if strict:
        lines.append(
            (
                "`--guard strict`: a wrong value handed out",
                "0",
                f"{sum(strict)} of {len(strict)} mismatches",
                not any(strict),
            )
        )
    return lines


def mark(results, check):
    """ "4/4" of the runs of one row; empty where the row does not ask."""
    asked = [checks[check] for *_, checks in results if checks.get(check) is not None]
    return f"{sum(asked)}/{len(asked)}" if asked else ""


def seconds_of(outcome, expected):
    if outcome.skipped:
        return "skipped"
    if expected.kind in ("fine", "orphans"):
        return "ok" if not outcome.hung else "hangs"
    return "–" if outcome.named is None else f"{outcome.named:.2f}"


def measured_on():
    """Commit, processor, cores, day."""
    here = Path(__file__).parent

    def git(*words):
        return subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = " and changes to it" if git("status", "--porcelain", "--untracked-files=no") else ""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = names[0].split(":", 1)[1].strip() if names else "a processor without a name"
    return (
        f"Measured on {time.strftime('%Y-%m-%d')}, commit {git('rev-parse', '--short=10', 'HEAD') or 'unknown'}{changed}, "
        f"{max(1, len(names))} cores of {processor}; load average over the last 15 minutes, other work included: "
        f"{os.getloadavg()[2]:.0f}."
    )


def fix_sizes(results):
    sizes = sorted({ranks for _, ranks, outcome, _ in results if outcome.fixed is not None})
    return " and ".join(str(size) for size in sizes) or "no"


def document(rows, sizes, results):
    """The text of docs/faults.md."""
    own = sum(row.runs_lockstep for row in rows)
    out = [
        "# Faults",
        "",
        "Written by `make faults` (tests/faults/suite.py): every fault below is made for real, in real processes, at every",
        "number of ranks, and what the roll call says is compared with what was done. Seconds run from the fault to its",
        "diagnosis, or to the notice where the job goes on. `4/4` counts the runs, one a number of ranks, in which that part of",
        "the diagnosis was right. The last column is torch.distributed alone (PyTorch 2.11, Gloo, torchrun, 3 ranks, one run",
        "each).",
        "",
        f"{own} of the {len(rows)} faults happen to `lockstep` itself (`sft`, `eval`, `embed`, `infer`; its own launcher or",
        f"another one), {len(rows) - own} to a script (ᵇ), because no flag, file or signal makes a rank's program call something else.",
        "",
        measured_on(),
        "",
        "**fix**: the words of the diagnosis are read by a program (tests/faults/fixes.py), which does the first thing that they",
        "name: a flag with its value, a variable, a command to give again. It is done to the very words the job was started",
        "with, and the fault is still there (the broken image, the full disk, the other file), unless it was an event that is",
        "over (a signal, a cable). `1/1`: the job then came to its end. n/a: the fix asks a person to think, as in “look for a",
        f"branch on the rank”; such rows count nowhere. Tried with {fix_sizes(results)} ranks.",
        "",
        "| what | bar | measured |",
        "| --- | --- | --- |",
    ]
    out += [
        f"| {what} | {bar} | {measured}{'' if good else ' (missed)'} |"
        for what, bar, measured, good in summary(results)
    ]
    heads = [f"{size} ranks" for size in sizes]
    out += [
        "",
        "| fault | " + " | ".join(heads) + " | culprit | op | name | place | what to do is said | fix | PyTorch alone |",
        "| --- |" + " --- |" * (len(sizes) + 7),
    ]
    for row in rows:
        own = [one for one in results if one[0] is row]
        times = [seconds_of(next(o for _, size, o, _ in own if size == wanted), row.expected) for wanted in sizes]
        marks = [mark(own, check) for check in ("culprit", "op", "name", "place", "advice", "fix")]
        marks[-1] = marks[-1] or ("n/a" if marks[-2] else "")
        name = row.summary + ("" if row.runs_lockstep else " ᵇ")
        out.append(f"| {name} | " + " | ".join(times + marks) + f" | {PLAIN_TORCH.get(row.name, '')} |")
    skips = sorted({f"- {row.summary}: {outcome.skipped}" for row, _, outcome, _ in results if outcome.skipped})
    if skips:
        out += ["", "Skipped where this was measured, for want of what they need:", "", *skips]
    out += [
        "",
        "**How to read it.** With two ranks nobody can tell by majority who is wrong: the diagnosis shows both sides, and names",
        "the one that left its own habit where there is one. A mismatch is found by comparing what ranks recorded, some",
        "milliseconds after the call, so a wrong sum may have been handed out by then; the job does not go on with it.",
        "`--guard strict` compares before the call starts.",
        "A rank that is slow or waits is named and left alone until the patience is over (`--patience`).",
    ]
    return "\n".join(out) + "\n"
