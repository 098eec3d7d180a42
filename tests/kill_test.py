"""A process group killed at random moments while it saves always leaves a whole newest checkpoint."""
import os
import random
import re
import signal
import time

from small_job import make_model, make_rows, sft_words
from story import SCALE, Story, finish, main, start

KILLS = int(os.environ.get("LOCKSTEP_KILLS") or max(3, 30 * SCALE))
SEED = int(os.environ.get("LOCKSTEP_SEED") or random.randrange(10**6))


class Kill(Story):
    def test_the_newest_checkpoint_is_always_whole(self):
        print(f"seed {SEED} (LOCKSTEP_SEED), {KILLS} kills (LOCKSTEP_KILLS)")
        chance = random.Random(SEED)
        out = self.folder / "out"
        words = sft_words(make_model(self.folder, "qwen2"), make_rows(self.folder, images=False), out, steps=1000000,
                          save_steps=1, save_total_limit=2, nproc=2, resume_from_checkpoint="auto")
        saved = 0
        for kill in range(KILLS + 1):  # the last start only shows what the last kill left
            process = start(*words)
            lines = []
            while not (lines and lines[-1].startswith("saved")):
                lines.append(process.stdout.readline())
                if not lines[-1]:
                    self.fail(finish(process).text)
            begun = [int(m[1]) for line in lines if (m := re.search(r"resumes after step (\d+)", line))]
            if kill > 0:
                self.assertTrue(begun, "".join(lines))
                self.assertGreaterEqual(begun[0], saved, "a checkpoint that was reported is gone")
                self.assertNotIn("damaged", "".join(lines))
            time.sleep(chance.uniform(0, 0.25))
            os.killpg(process.pid, signal.SIGKILL)
            rest = finish(process).stdout
            saved = max(int(m) for m in re.findall(r"checkpoint-(\d+)", "".join(lines) + rest))
        left = [path.name for path in out.glob("checkpoint-*") if ".tmp-" not in path.name]
        self.assertLessEqual(len(left), 3, left)


if __name__ == "__main__":
    main()
