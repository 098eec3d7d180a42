#!/usr/bin/env python3
"""Lets Python import the torch of one environment from another, also where the GPU wheels are not there.

torch's Python half is linked against cuBLAS, cuDNN, NCCL and more: 2.5 GB that a run on CPUs never calls, and which
tools/setup.sh leaves out. For each library that the wheel asks for and that is not there, a stand-in is compiled that has
its name and, as functions that abort, every name that torch leaves open. A .pth file adds torch's folder to the path and
loads the stand-ins first. Where all libraries are there (LOCKSTEP_GPU=1) nothing is stood in for.

Usage: gpu_standins.py TORCH_SITE_PACKAGES SITE_PACKAGES     writes SITE_PACKAGES/lockstep_torch.pth and lockstep_torch/
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

LOADER = '''"""Loads the libraries that stand in for those of GPUs (tools/gpu_standins.py); called by lockstep_torch.pth."""
import ctypes
from pathlib import Path

for library in sorted(Path(__file__).parent.glob("*.so.*")):
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
'''


def said_by(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", said_by("readelf", "-d", library))


def names(library, which):
    """The dynamic symbols of a library that are open ("--undefined-only") or its own ("--defined-only")."""
    return {line.split()[-1].split("@")[0] for line in said_by("nm", "-D", which, library).splitlines()}


def loaded_with(first, folders):
    """The libraries of the wheels that are loaded with `first`, and the names of those that are nowhere."""
    known = {file.name: file for folder in folders for file in folder.glob("*.so*")}
    system = set(re.findall(r"^\s*(\S+) \(", said_by("/sbin/ldconfig", "-p"), re.M))
    loaded, missing, todo = {first}, set(), needed_by(first)
    while todo:
        name = todo.pop()
        if name not in known:
            missing |= {name} - system - {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        elif known[name] not in loaded:
            loaded.add(known[name])
            todo += needed_by(known[name])
    return loaded, missing


def compile_standins(libraries, missing, folder):
    own = set().union(*(names(library, "--defined-only") for library in libraries))
    left_open = set().union(*(names(library, "--undefined-only") for library in libraries)) - own
    # What the system's libraries have is theirs: only these prefixes belong to GPU libraries.
    code = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n"
                   for name in sorted(left_open) if re.match(r"(cu|nv|nccl)\w+$", name))
    source = folder / "standin.c"
    source.write_text(code)
    for name in sorted(missing):
        subprocess.run(["gcc", "-w", "-O1", "-fno-builtin", "-fPIC", "-shared", f"-Wl,-soname,{name}", source, "-o", folder / name], check=True)
    source.unlink()


def main():
    torch_site, site = (Path(word).resolve() for word in sys.argv[1:])
    folder = site / "lockstep_torch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "__init__.py").write_text(LOADER)
    first = next((torch_site / "torch").glob("_C.*.so"))
    libraries, missing = loaded_with(first, [torch_site / "torch" / "lib", *torch_site.glob("nvidia/*/lib")])
    if missing:
        compile_standins(libraries, missing, folder)
    (site / "lockstep_torch.pth").write_text(f"{torch_site}\nimport lockstep_torch\n")
    print(f"{site}: torch of {torch_site}, {len(missing)} GPU libraries stood in for")


if __name__ == "__main__":
    main()
