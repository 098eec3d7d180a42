"""What stories share that give the program what strangers have made: runs within bounds, and how a refusal must be."""
import shutil
import subprocess
import tempfile
from pathlib import Path

from small_job import make_model, make_rows
from story import BINARY, SANITIZED, Story, environment, finish, training_all

MEMORY_KIB = "unlimited" if SANITIZED else 6 << 20  # of addresses; LibTorch alone takes a third
CPU_SECONDS = 300 if SANITIZED else 30  # the whole of a case; each takes less than one, but for the few that reach a budget of steps
DOCUMENTED = {0, 2, 3, 4, 5, 6, 7}
MAX_MESSAGE = 4096
DEEP = 100_000


def nested(open_, close, depth=DEEP):
    return open_ * depth + "1" + close * depth


DEEP_LIST, DEEP_OBJECT = nested("[", "]"), nested('{"a":', "}")


class Hostile(Story):
    FAMILIES = ()  # models that all cases share

    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="lockstep_hostile_"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.models = {family: make_model(cls.shared, family) for family in cls.FAMILIES}
        cls.rows = make_rows(cls.shared, count=3)

    def limited(self, *words):
        command = f'ulimit -v {MEMORY_KIB} -t {CPU_SECONDS}; exec "$0" "$@"'
        process = subprocess.Popen(["bash", "-c", command, str(BINARY), *training_all(words)], env=environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="replace", start_new_session=True)
        return finish(process)

    def refused(self, code, words, *parts):
        done = self.limited(*words)
        shown = done.text[:6000]
        self.assertIn(done.returncode, DOCUMENTED, shown)  # a signal is negative, a bug 70
        self.assertEqual(done.returncode, code, shown)
        self.assertLessEqual(len(done.stderr.encode()), MAX_MESSAGE, shown)
        for text in (done.stdout, done.stderr):
            self.assertNotIn("bug in lockstep", text, shown)
        for part in parts:
            self.assertIn(part, done.stderr + done.stdout, shown)
        return done
