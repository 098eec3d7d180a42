"""The fix that a diagnosis proposes, read from its own words and applied to the words a job was started with.

Nothing here knows of a fault: what the text does not name is not done. A text names what to do in one of these ways, and of
several ways that it offers the first is taken:

    start rank 1 with --model /a/b WORLD_SIZE=3 without --seed, as ranks 0, 2     the named ranks alone
    start rank 1 too, by the same command with RANK=1 …                          one that was never started
    … --strict false …, … MASTER_PORT=40123 …                                    all ranks
    the same command with --flag value …, give the same command again            all ranks

Example:
    fix = read_fix(diagnosis["fix"])              # None: it asks a person to think
    mended = apply_fix(fix, run.started)
"""

import re
import shlex
from dataclasses import dataclass, field, replace

FLAG = re.compile(r"--[a-z][a-z0-9_]*")
VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(\S+)")
# What stands behind a flag in a sentence is its value where it can be nothing else.
VALUE = re.compile(r"(true|false|auto|none|no|steps|epoch|default|strict|off|gloo|shm|nccl|cpu|cuda|\S*[0-9/=]\S*)")
ALTERNATIVES = re.compile(r"; |, or | or (?=--|[A-Z_]+=|set )")


@dataclass(frozen=True)
class Started:
    """A process of a job: the rank that it is (None: a launcher of all), its words behind the binary, its variables."""

    rank: int | None
    words: tuple
    env: dict = field(default_factory=dict)
    before: tuple = ()


@dataclass(frozen=True)
class Fix:
    flags: dict = field(default_factory=dict)
    env: dict = field(default_factory=dict)
    without: tuple = ()
    ranks: tuple = ()  # those it is for; empty: all
    is_missing: bool = False  # they were never started



def ranks_of(text):
    """ "1" or "1, 3-5" as numbers."""
    out = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        out += range(int(first), int(last or first) + 1)
    return tuple(out)


def settings_in(text, exact=False):
    """Flags and variables with their values. `exact`: whatever stands behind a flag is its value."""
    flags, env, words = {}, {}, shlex.split(text, posix=True)
    for at, word in enumerate(words):
        if variable := VARIABLE.fullmatch(word.rstrip(",;:.")):
            env[variable[1]] = variable[2]
        if not FLAG.fullmatch(word):
            continue
        values = []
        for value in words[at + 1 :]:
            if FLAG.fullmatch(value) or VARIABLE.fullmatch(value):
                break
            if not exact:
                value = value.rstrip(",;:.)")
            if exact or VALUE.fullmatch(value):
                values.append(value)
            if not exact:
                break
        if values or exact:
            flags[word] = values
    return flags, env


def unquoted(text):
    """Without what stands between backticks, which is a command to run beside the job, and without stray quotes."""
    return re.sub(r"`[^`]*`", "", text).replace('"', "")


def read_fix(text):
    """The first thing that can be done by itself; an empty Fix is the same command once more; None: there is none."""
    text = unquoted(text or "")
    alike = re.search(r"\bstart ranks? ([\d, -]*\d)(?: with (.*?))?(?: and)?(?: without ((?:--\S+ ?)+))?, as rank", text)
    if alike:
        flags, env = settings_in(alike[2] or "", exact=True)
        without = tuple((alike[3] or "").split())
        return Fix(flags, env, without, ranks_of(alike[1]))
    missing = re.search(r"\bstart ranks? ([\d, -]*\d) too, by the same command with (.*?)(?:;|$)", text)
    if missing:
        _, env = settings_in(missing[2])
        return Fix(env=env, ranks=ranks_of(missing[1]), is_missing=True) if "RANK" in env else None
    found = None
    for clause in ALTERNATIVES.split(text):
        if clause.count("'") % 2:
            continue
        goes_on = re.search(r"\b(the same command with --|give the same command again\b)", clause)
        if found is not None and not goes_on:
            continue  # another way, or a word of explanation
        flags, env = settings_in(clause)
        if flags or env or goes_on:
            found = Fix({**flags, **(found.flags if found else {})}, {**env, **(found.env if found else {})})
    return found


def with_flags(words, fix):
    """The words with each flag of the fix set, and those that it takes away gone."""
    out, at = [], 0
    gone = {*fix.flags, *fix.without}
    while at < len(words):
        word = str(words[at])
        at += 1
        if word.split("=")[0] not in gone or not FLAG.match(word):
            out.append(word)
            continue
        while "=" not in word and at < len(words) and not FLAG.match(str(words[at])):
            at += 1
    for flag, values in fix.flags.items():
        out += [flag, *values]
    return tuple(out)


def apply_fix(fix, started):
    """What to start instead of `started`."""
    if fix.is_missing:
        like = started[0]
        more = [replace(like, rank=rank, env={**like.env, **fix.env}) for rank in fix.ranks]
        return sorted([*started, *more], key=lambda one: one.rank)
    return [
        one
        if fix.ranks and one.rank not in fix.ranks
        else replace(one, words=with_flags(one.words, fix), env={**one.env, **fix.env})
        for one in started
    ]
