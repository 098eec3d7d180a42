"""What an output says of a fault, and whether that is true."""
import re
from collections import Counter
from dataclasses import dataclass, field

GUARD_SAYS = re.compile(r"^lockstep guard: (the job was ended|error|notice): (.*)")
TROUBLE = re.compile(r"\b\w*(Error|Exception)\b|terminate called|SIGABRT|SIGSEGV|Signal \d+")
TORCHRUN_BLAMES = re.compile(r"Root Cause.*?\n.*?rank +: (\d+)", re.S)
DETAIL_BLAMES = re.compile(r"Ranks? (\d+(?:, \d+)*) failed to pass monitoredBarrier")
ACCELERATE_LISTS = re.compile(r"- Process (\d+): (.*)")


@dataclass
class Said:
    """The diagnosis of a system: `ended` when it ended the job for it, and not only told of it."""
    at: float | None = None
    ended: bool = False
    named: set = field(default_factory=set)
    text: str = ""
    headline: str | None = ""  # None: this system has none


def ranks_in(text):
    """Of the first "rank 1", "ranks 0, 2" or "ranks 0-3"; of all that are said to wait for each other."""
    circle, found, _ = text.partition(" wait for each other")
    named = re.findall(r"\branks? ((?:\d+(?:-\d+)?(?:, )?)+)", circle)
    ranks = set()
    for part in re.findall(r"\d+(?:-\d+)?", " ".join(named if found else named[:1])):
        first, _, last = part.partition("-")
        ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def said_by_guard(run):
    """What it ended the job for; where it has not, its last notice, with the time of the first."""
    said = Said()
    for number, (at, line) in enumerate(run.lines):
        found = GUARD_SAYS.match(line)
        if not found or said.ended:
            continue
        below = []
        for _, text in run.lines[number + 1:]:
            if not text.startswith("  ") or text.startswith("  File "):
                break
            below.append(text)
        ended = found[1] != "notice"
        said = Said(at if ended or said.at is None else said.at, ended, ranks_in(found[2]), line + "".join(below), found[2])
    return said


def said_by_torch(run):
    """The first trouble that is told; any line of any rank counts as the place."""
    for at, line in run.lines:
        if TROUBLE.search(line) and (run.moment is None or at >= run.moment):
            return Said(at, True, blamed_by_torch(run.text), run.text, None)
    return Said(headline=None)


def blamed_by_torch(text):
    """Of Accelerate's list of shapes the one that is not like the others; the rank that DETAIL names; torchrun's root cause."""
    shapes = {int(rank): shape for rank, shape in ACCELERATE_LISTS.findall(text)}
    if shapes:
        counts = Counter(shapes.values())
        return {rank for rank, shape in shapes.items() if counts[shape] < max(counts.values()) or len(shapes) == 2}
    blamed = DETAIL_BLAMES.search(text) or TORCHRUN_BLAMES.search(text)
    return {int(rank) for rank in blamed[1].split(", ")} if blamed else set()


def names_op(op, text):
    return re.search("|".join(rf"(?<![a-z])_?{one.replace('_', '_?')}" for one in op.split("|")), text, re.I) is not None


def names_place(places, text):
    return any(re.search(rf"\b{re.escape(file)}(:|\", line ){line}\b", text) for file, line in places)


def judge(truth, run, said, seed, ranks):
    """By name: True, False, or None where it is not asked."""
    if truth.ends == "never":
        return {"left alone": run.code == 0 and not said.ended and not run.wrong}
    told = said.at is not None
    return {
        "no hang": run.code is not None,
        "told": told,
        "not silently wrong": told or run.code != 0 or not run.wrong,
        "before wrong numbers": not run.wrong,
        "ended": said.ended if truth.ends == "must" else None,
        "culprit": truth.is_right_about(said.named, said.text, seed, ranks),
        "what": re.search(truth.what, said.headline) is not None if said.headline is not None else None,
        "op": names_op(truth.op, said.text) if truth.op else None,
        "place": names_place(truth.places(), said.text) if truth.places() else None,
        "name": re.search(truth.name, said.text) is not None if truth.name else None,
    }


def in_words(truth, run, said, checks):
    if truth.ends == "never":
        return "left alone" if checks["left alone"] else "hangs" if run.code is None else f"not left alone (code {run.code})"
    wrong = "wrong numbers, " if run.wrong else ""
    if said.at is None:
        how = "hangs" if run.code is None else f"ends without a word (code {run.code})" if run.code else "nothing said"
        return wrong + how
    missing = [name for name in ("ended", "what", "op", "place", "name") if checks[name] is False]
    if checks["culprit"] is False:
        missing.insert(0, f"culprit ({', '.join(map(str, sorted(said.named))) or 'nobody'})")
    what = f"not: {', '.join(missing)}" if missing else "right"
    return f"{wrong}{'' if said.ended else 'hangs, notice ' if run.code is None else 'notice '}{seconds(run, said)}: {what}"


def seconds(run, said):
    since = said.at - (run.moment or run.begun)
    rest = "" if run.gone is None or run.code is None else f" + {max(0.0, run.gone - said.at):.1f}"
    return f"{since:.2f}{rest} s"
