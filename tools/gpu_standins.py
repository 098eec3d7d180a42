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
    """The dynamic symbols of a library that are open ("--undefined-only") or its own ("--defined-only"), each with its version or ""."""
    return {tuple((line.split()[-1].replace("@@", "@") + "@").split("@")[:2]) for line in said_by("nm", "-D", which, library).splitlines()}


def versions_asked_of(name, libraries):
    """By these libraries, of the one that is called so."""
    parts = [part for library in libraries for part in said_by("readelf", "-V", "-W", library).split(" File: ")[1:]]
    return {version for part in parts if part.split()[0] == name for version in re.findall(r" Name: (\S+)", part)}


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
    own = {name for library in libraries for name, _ in names(library, "--defined-only")}
    left_open = {(name, version) for library in libraries for name, version in names(library, "--undefined-only") if name not in own}
    for library in sorted(missing):
        # What the system's libraries have is theirs: without a version only these prefixes belong to GPU libraries.
        plain = {name for name, version in left_open if not version and re.match(r"(cu|nv|nccl)\w+$", name)}
        nodes = {asked: sorted(name for name, version in left_open if version == asked) for asked in versions_asked_of(library, libraries)}
        source, script = folder / "standin.c", folder / "versions"
        source.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in sorted(plain.union(*nodes.values()))))
        script.write_text("".join(f"{asked} {{ {' '.join(f'{name};' for name in has)} }};\n" for asked, has in nodes.items()))
        words = [f"-Wl,--version-script={script}"] if nodes else []
        subprocess.run(["gcc", "-w", "-O1", "-fno-builtin", "-fPIC", "-shared", f"-Wl,-soname,{library}", *words, source, "-o", folder / library], check=True)
        source.unlink()
        script.unlink()


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
