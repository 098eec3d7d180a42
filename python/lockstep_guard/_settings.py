"""What the environment asks for, and how a person is told."""
import os
import sys


def mode():
    """"off", "on", "notice": tells and ends nothing, or "strict": no call starts before all have come to it alike."""
    word = os.environ.get("LOCKSTEP_GUARD", "0").lower()
    if word not in ("notice", "strict", "", "0", "off", "false", "no", "1", "on", "true", "yes"):
        _say_once(f"guard: LOCKSTEP_GUARD={word!r:.40}: expected 1, 0, notice or strict; 1 is taken")
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
        _say_once(f"guard: {name}={os.environ[name]!r:.40}: expected a number of seconds; {default:g} is taken")
        return default


_said = set()


def _say_once(text):
    if text not in _said:
        _said.add(text)
        say(text)
