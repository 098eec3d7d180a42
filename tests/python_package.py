"""For the stories of the Python package: installed as its wheel brings it, and a case that stands in its folder."""
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from story import BINARY, ROOT, Story, environment

SITE = ROOT / "build" / "python_package" / Path(sys.argv[0]).stem  # what the wheel installs, for this file of stories


def install():
    missing = [name for name in ("torch", "numpy", "PIL", "mypy") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")
    shutil.rmtree(SITE, ignore_errors=True)
    wheels = SITE / "wheels"
    for words in ([ROOT / ".venv" / "bin" / "python", "-B", ROOT / "tools" / "wheel.py", BINARY.parent.parent, wheels],
                  [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--target", SITE,
                   "--find-links", wheels, "lockstep"]):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words}:\n{done.stdout}\n{done.stderr}")
    os.environ.update(environment())
    sys.path.insert(0, str(SITE))


def program(folder, text, *words):
    """A Python program of its own, in a process group of its own."""
    file = folder / "program.py"
    file.write_text(text)
    return subprocess.Popen([sys.executable, "-B", str(file), *map(str, words)], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment({"PYTHONPATH": SITE, "PYTHONUNBUFFERED": "1"}), start_new_session=True)


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


class PythonStory(Story):
    maxDiff = None

    def setUp(self):
        super().setUp()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)  # where relative paths of rows begin

    def ended(self, process, timeout=600):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"still running after {timeout} s\n{out}\n{err}")
        return process.returncode, out, err
