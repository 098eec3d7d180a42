"""One job under torchrun: every line with the time at which it came, when the fault was, and that nothing is left."""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from story import environment, free_port

JOBS = Path(__file__).resolve().parent / "faults"


def suite_parser(doc, ranks, only, limit, limit_is):
    """The flags that suites of jobs share."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", nargs="+", type=int, default=ranks)
    parser.add_argument("--only", default="", help=only)
    parser.add_argument("--limit", type=float, default=limit, help=limit_is)
    parser.add_argument("--package", type=Path, default=JOBS.parents[2] / "build" / "guard" / "package")
    parser.add_argument("--json", type=Path, help="a file for all results, with the texts")
    parser.add_argument("--markdown", action="store_true", help="print the table")
    parser.add_argument("--texts", action="store_true", help="print what was said wherever something is not right")
    return parser


@dataclass
class Run:
    code: int | None = None  # None: it was still there when the time was up
    begun: float = 0.0
    moment: float | None = None  # of the fault
    gone: float | None = None  # the last process
    wrong: str = ""  # numbers that were handed out and were not what they must be
    lines: list = field(default_factory=list)  # (time, text)

    @property
    def text(self):
        return "".join(line for _, line in self.lines)


def launch_words(truth, ranks):
    nodes = ["--nnodes", 2, "--node_rank", 0] if truth.fault == "absent_node" else []
    return [*nodes, "--nproc_per_node", ranks, "--master_addr", "127.0.0.1", "--master_port", free_port()]


def run(truth, ranks, seed, variables, limit, folder, begin=subprocess.Popen):
    """Killed `limit` seconds after the fault, or three times as late where it does not come to it. `begin`: or warm.Popen."""
    mark = str(uuid.uuid4())
    env = environment({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "FAULT_RUN": mark, **variables})
    if truth.fault == "absent_node":
        (Path(folder) / "moment.launcher").write_text(str(time.time()))
    words = [sys.executable, "-m", "torch.distributed.run", *launch_words(truth, ranks), JOBS / f"{truth.job}.py", truth.fault, seed, folder]
    done = Run(begun=time.time())
    process = begin([str(word) for word in words], env=env, cwd=folder, text=True, errors="replace", stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, start_new_session=True)
    reader = threading.Thread(target=read_lines, args=(process.stdout, done), daemon=True)
    reader.start()
    while reader.is_alive():
        done.moment = moment_in(folder)
        if time.time() > (done.moment + limit if done.moment else done.begun + 3 * limit):
            break
        reader.join(0.1)
    hung = reader.is_alive()
    if not hung:
        done.gone = time.time()
        done.code = process.wait()
    end_all(mark, folder)
    process.wait()
    reader.join(5)
    done.moment = moment_in(folder)
    done.wrong = "".join(path.read_text() for path in sorted(Path(folder).glob("wrong.*")))
    return done


def read_lines(pipe, done):
    for line in pipe:
        done.lines.append((time.time(), line))


def moment_in(folder):
    moments = [text for path in Path(folder).glob("moment.*") if (text := path.read_text())]
    return min(map(float, moments)) if moments else None


def end_all(mark, folder):
    """Ranks have sessions of their own: they are known by a variable that only this job has, or, of one that was forked, by the folder."""
    for process in Path("/proc").iterdir():
        if not re.fullmatch(r"\d+", process.name):
            continue
        try:
            if f"FAULT_RUN={mark}".encode() in (process / "environ").read_bytes().split(b"\0") or (process / "cwd").samefile(folder):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass  # it has gone meanwhile, or is somebody else's
