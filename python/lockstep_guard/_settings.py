"""What the environment asks for, and how a person is told."""
import os
import sys


def mode():
    """"off", "on", "notice": tells and ends nothing, or "strict": no call starts before all have come to it alike."""
    word = os.environ.get("LOCKSTEP_GUARD", "0").lower()
    return word if word in ("notice", "strict") else "off" if word in ("", "0", "off", "false", "no") else "on"


def notice_seconds():
    return _number("LOCKSTEP_GUARD_NOTICE_SECONDS", 3.0)


def patience_seconds(own=1800.0):
    """For a rank that is alive; `own` is what the job itself has asked of torch."""
    return _number("LOCKSTEP_GUARD_PATIENCE", own)


def say(text):
    """Of what all ranks would say: the first of them does."""
    if os.environ.get("RANK", "0") == "0":
        say_alone(text)


def say_alone(text):
    print(f"lockstep {text}", file=sys.stderr, flush=True)


def _number(name, default):
    try:
        return float(os.environ.get(name, default))
    except ValueError:
        return default
