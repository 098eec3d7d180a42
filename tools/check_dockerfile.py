#!/usr/bin/env python3
"""The Dockerfile does what README.md says under "Two commands", and nothing else.

The image is the system that README names, what is installed there is what README says must be there, CMD is the first of
the two commands, and what RUN calls is one of them or what the Makefile makes first for one of them.

Usage: check_dockerfile.py [ROOT]   prints one line a finding, exits 1 if there is any.
"""
import json
import re
import shlex
import sys
from pathlib import Path

SETTING_UP = ("apt-get update", "rm -rf /var/lib/apt/lists/*")


def two_commands(readme):
    """(system, packages that must be there, commands) of README's section."""
    section = re.search(r"^## Two commands\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    text = section[1] if section else ""
    system = re.search(r"On (\w+) (\d+)", text)
    packages = re.search(r"nothing but ([\w, -]+?) needs", text)
    block = re.search(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    commands = [line.split("#")[0].strip() for line in block[1].splitlines()] if block else []
    return (f"{system[1].lower()}:{system[2]}" if system else None,
            set(re.split(r", | and ", packages[1])) if packages else set(), [command for command in commands if command])


def instructions(dockerfile):
    """(line number, word, rest) of each instruction, lines that end in a backslash joined."""
    number, pending = 0, ""
    for i, line in enumerate(dockerfile.splitlines(), 1):
        if not pending and (not line.strip() or line.startswith("#")):
            continue
        number = number if pending else i
        pending += line.rstrip("\\") if line.endswith("\\") else line
        if not line.endswith("\\"):
            word, _, rest = pending.strip().partition(" ")
            yield number, word.upper(), rest.strip()
            pending = ""


def made_first(makefile, target, seen=None):
    """`target` and what the Makefile makes before it."""
    seen = set() if seen is None else seen
    if target not in seen:
        seen.add(target)
        for names in re.findall(rf"^{re.escape(target)}:([^=\n]*)$", makefile, re.M):
            for name in names.split():
                made_first(makefile, name, seen)
    return seen


def installed(command):
    """The packages of an `apt-get install`, or None."""
    words = shlex.split(command)
    return {word for word in words[2:] if not word.startswith("-")} if words[:2] == ["apt-get", "install"] else None


def findings(root):
    system, packages, commands = two_commands((root / "README.md").read_text())
    if not (system and packages and commands):
        yield "README.md:1: no section \"Two commands\" with a system, what must be there, and commands"
        return
    makefile = (root / "Makefile").read_text()
    allowed = {f"make {name}" for command in commands if command.startswith("make ")
               for name in made_first(makefile, command.removeprefix("make "))}
    has_cmd = False
    for number, word, rest in instructions((root / "Dockerfile").read_text()):
        where = f"Dockerfile:{number}"
        if word == "FROM" and rest != system:
            yield f"{where}: FROM {rest}, README.md says {system}"
        for part in (rest.split(" && ") if word == "RUN" else []):
            found = installed(part)
            if found is not None and found != packages:
                yield f"{where}: installs {', '.join(sorted(found))}, README.md says that {', '.join(sorted(packages))} must be there"
            elif found is None and part not in SETTING_UP and part not in allowed:
                yield f"{where}: RUN {part}, README.md says {' and '.join(commands)}"
        if word in ("CMD", "ENTRYPOINT"):
            command = " ".join(json.loads(rest)) if rest.startswith("[") else rest
            has_cmd = True
            if word != "CMD" or command != commands[0]:
                yield f"{where}: {word} {command}, README.md says {commands[0]}"
    if not has_cmd:
        yield f"Dockerfile:1: no CMD {commands[0]}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    count = 0
    for line in findings(root):
        print(line)
        count += 1
    print(f"Dockerfile and README.md, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
