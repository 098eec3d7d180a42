"""What came of one run, and whether it was what the row asks for.

A diagnosis is read from the post-mortem folder; where a person must mend flags or files there is none, and the last lines
tell the same.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 40  # seconds after which a run hangs
BARS = {
    "mismatch": 0.5,
    "death": 1.0,
    "stopped": 5.0,
    "deadlock": 5.0,
    "stall": 5.0,
    "straggler": 10.0,
    "start": 10.0,
    "network": 15.0,
}
GONE = 10.0
AFTER_PATIENCE = 1.5


@dataclass
class Expected:
    kind: str  # names of faults, "fine", "notice"; regular expressions all
    op: str = ""
    label: str = ""
    place: str = ""
    says: str = ""
    fix: str = ""
    watched: bool = True  # somebody ends the ranks that do not end by themselves
    culprit: int = 1  # -1: the last node, -2: nobody
    bar: str = "none"
    patience: float = 600


@dataclass
class Outcome:
    ranks: int
    hung: bool = False
    wrong: bool = False
    left: int = 0
    code: int = 0
    text: str = ""
    named: float = None  # seconds from the fault to the word of the roll call
    ended: float = None  # to the diagnosis that ends the job
    dated: bool = False  # by the file of the diagnosis; its lines come when the ranks have gone, up to 2 s later
    gone: float = None  # to the end of the last process
    diagnosis: dict = field(default_factory=dict)
    fix: object = None  # what its words can be carried out as; None: a person must think
    fixed: bool = None  # it was, and the job went well; None when there was nothing to carry out
    strict_wrong: bool = None  # a wrong value was handed out under --guard strict; None when it was not tried
    skipped: str = ""

    @property
    def fix_text(self):
        return f"{self.diagnosis.get('fix', '')} {self.diagnosis.get('hint', '')}".strip()


# What the first line tells where there is no file.
KINDS = [
    ("did not come to the meeting", "absent"),
    ("do not agree on", "facts"),
    ("was killed", "death"),
    ("crashed", "death"),
    ("is gone", "death"),
    ("ended with exit code", "death"),
    ("has been stopped", "stopped"),
    ("is busy elsewhere", "stall"),
    ("is blocked in the kernel", "stall"),
    ("does not answer", "lost node"),
]


def read_diagnosis(folder, text):
    """The diagnosis as a dict, and the moment (realtime) it was written when that is known."""
    for path in sorted(Path(folder).glob("**/post_mortem*/diagnosis.json")):
        return json.loads(path.read_text()), path.stat().st_mtime
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if ": the job was ended: " in line or ": error: " in line), None)
    if start is None:
        return {}, None
    ended = ": the job was ended: " in lines[start]
    headline = re.split(r": the job was ended: |: error: ", lines[start], maxsplit=1)[1]
    block = "\n".join(lines[start:])
    hint = re.search(r"(?:fix|hint:) +(.*)", block)
    kind = next((kind for phrase, kind in KINDS if phrase in headline), "unknown") if ended else "error"
    found = {
        "fault": kind,
        "headline": headline,
        "text": block,
        "fix": hint[1] if hint else "",
        "culprits": ranks_in(headline),
        "sides": [],
        "places": [],
        "op": "",
        "label": "",
        "between_two": False,
    }
    for line in re.findall(r"^ {9,}ranks? [\d, -]+  .*$|^  call +ranks? .*$", block, re.M):
        found["sides"].append({"call": line.strip(), "site": "", "ranks": ranks_in(line)})
    call = r'^(?:  call|        ) +(?:ranks? [\d, -]+  )(\w+) .*?"(.*?)" '
    # Ranks that work on their own rows may make no call for a while: then nobody waits, and what is told is the last one.
    told = re.search(call + r"\(waiting\)", block, re.M) or re.search(call + r"\(its last, #\d+, done\)", block, re.M)
    if told:
        found["op"], found["label"] = told[1], told[2]
    place = re.search(r"^  place +(.*)$", block, re.M)
    found["places"] = [place[1]] if place else [headline]
    return found, None


def ranks_in(text):
    """The ranks of the first "rank 1" or "ranks 0, 2" in a text."""
    match = re.search(r"ranks? ((?:\d+(?:-\d+)?(?:, )?)+)", text)
    ranks = []
    for part in (match[1].split(", ") if match else []):
        first, _, last = part.partition("-")
        if first:
            ranks += range(int(first), int(last or first) + 1)
    return ranks


def culprit_is_right(found, expected, ranks):
    """Named alone; or of two ranks, where nobody can tell, with both sides shown."""
    culprits = found.get("culprits", [])
    if expected.culprit == -2:  # what all of them share is at fault: a disk
        return None
    if expected.culprit < 0:  # the last node
        return bool(culprits) and ranks - 1 in culprits and 0 not in culprits
    structures = re.findall(r"^ *(ranks? [\d, -]+): ", found.get("text", "") + "\n" + found.get("headline", ""), re.M)
    if "structures differ" in found.get("headline", "") and len(set(structures)) > 1:
        smallest = min((ranks_in(one) for one in structures), key=len)
        return smallest == [expected.culprit] or ranks == 2
    if culprits == [expected.culprit]:
        return True
    if found.get("fault") == "error" and ranks_in(found.get("headline", "")) == [expected.culprit]:
        return True  # an error that all ranks share names the one it came from
    both_shown = len(found.get("sides", [])) > 1 or found.get("between_two")
    return ranks == 2 and bool(both_shown) and expected.bar in ("mismatch", "deadlock", "start")


def holds(pattern, text):
    return bool(re.search(pattern, text or "", re.S))


def judge(outcome, expected, slack=1):
    """The checks of a row by name: True, False, or None where the row does not ask. `slack`: times may be as much longer."""
    found = outcome.diagnosis
    checks = {"no hang": not outcome.hung, "nobody left": not outcome.hung and outcome.left == 0}
    if expected.kind in ("fine", "notice"):
        checks["detected"] = outcome.code == 0 and not outcome.wrong and holds(expected.says, outcome.text)
        checks["not silently wrong"] = not outcome.wrong
        if expected.kind == "notice":
            checks["in time"] = outcome.named is not None and outcome.named <= slack * BARS[expected.bar]
        return checks
    if expected.kind == "orphans":
        return {
            **checks,
            "detected": True,
            "not silently wrong": True,
            "gone in time": outcome.gone is not None and outcome.gone <= slack * GONE,
        }
    text = found.get("text", "") + "\n" + found.get("headline", "")
    places = "\n".join(found.get("places", []) + [side["site"] + " " + side["call"] for side in found.get("sides", [])])
    checks["not silently wrong"] = bool(found) and outcome.code != 0
    checks["detected"] = bool(re.fullmatch(expected.kind, found.get("fault", ""))) and holds(
        expected.says, text + outcome.text
    )
    checks["culprit"] = culprit_is_right(found, expected, outcome.ranks)
    checks["op"] = (
        bool(re.fullmatch(expected.op, found.get("op", ""), re.S) or (expected.op == "." and found.get("op")))
        if expected.op
        else None
    )
    checks["name"] = holds(expected.label, found.get("label", "") or text) if expected.label else None
    checks["place"] = holds(expected.place, places + "\n" + text) if expected.place else None
    checks["advice"] = holds(expected.fix, outcome.fix_text) if expected.fix else None
    checks["fix"] = outcome.fixed
    checks["in time"] = (
        outcome.named is not None and expected.bar in BARS and outcome.named <= slack * BARS[expected.bar]
    )
    if expected.bar == "none":
        checks["in time"] = None
    since = outcome.gone
    if expected.bar in ("stall", "start", "none") and outcome.ended is not None:  # not since a fault that lay in wait
        since = None if outcome.gone is None else outcome.gone - outcome.ended
    if expected.bar == "stall":
        checks["ended in time"] = (
            None
            if outcome.ended is not None and not outcome.dated
            else outcome.ended is not None
            and expected.patience - 0.2 <= outcome.ended <= expected.patience + slack * AFTER_PATIENCE
        )
    checks["gone in time"] = (since is not None and since <= slack * GONE) if expected.watched else None
    return checks
