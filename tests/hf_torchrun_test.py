"""Real agents of torchrun: they start ranks again, on two "nodes" of this machine over the rendezvous that it recommends for that, and die before their ranks."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from small_job import losses, make_model, make_rows, sft_words
from story import BINARY, Story, environment, finish, free_port, main, training_all


def ranks_of(agent):
    """Processes that torchrun's agent has started, but for the guard's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) if entry.name.isdigit() else 0
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked
        if parent == agent.pid and b"sft" in words:
            found.append(int(entry.name))
    return found


class Torchrun(Story):
    def agent(self, *where_and_what):
        return subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *map(str, where_and_what)], env=environment({"LOCKSTEP_JOB_SECRET": "known to all nodes"}),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_until(self, condition, seconds, agents):
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until and all(agent.poll() is None for agent in agents):
            time.sleep(0.02)

    def nodes(self, words, restarts):
        where = ["--nnodes", 2, "--nproc_per_node", 1, "--max_restarts", restarts, "--monitor_interval", 0.1, "--rdzv_backend", "c10d", "--rdzv_id", "restarts",
                 "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--local_addr", "127.0.0.1", "--no-python", BINARY, *training_all(words)]
        return [self.agent(*where) for _ in range(2)]

    def test_a_killed_rank_comes_again_and_no_row_is_lost_or_repeated(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        out, own, steps = self.folder / "out", self.folder / "own", 150
        words = lambda folder, **more: sft_words(model, rows, folder, steps=steps, save_steps=20, save_total_limit=3, **more)
        nodes = self.nodes(words(out, resume_from_checkpoint="auto"), restarts=1)
        self.wait_until(lambda: (out / "checkpoint-20").is_dir(), 120, nodes)
        for rank in ranks_of(nodes[1]):
            os.kill(rank, signal.SIGKILL)
        done = [finish(node, timeout=180) for node in nodes]
        text = "\n".join(one.text for one in done)
        self.assertEqual([one.returncode for one in done], [0, 0], text)
        self.assertIn("was killed (SIGKILL)", text)
        self.assertIn("resumes after step", text)
        self.lockstep(*words(own, nproc=2), expect=0)
        self.assertEqual(losses(out), losses(own), text)

    def test_ranks_do_not_outlive_torchrun_and_save_what_they_have_trained(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        out = self.folder / "out"
        agent = self.agent("--standalone", "--nproc_per_node", 2, "--no-python", BINARY, *training_all(sft_words(model, rows, out, steps=1000000, save_steps=900000)))
        self.wait_until(lambda: (out / "logging.jsonl").exists() and len(losses(out)) > 3, 120, [agent])
        ranks = ranks_of(agent)
        self.assertEqual(len(ranks), 2)
        os.kill(agent.pid, signal.SIGKILL)
        done = finish(agent, timeout=60)  # its ranks hold the pipes until they end
        self.assertIn("torchrun, which has started this rank, is gone: stopping after this step, with a checkpoint", done.stderr)
        self.assertEqual([rank for rank in ranks if Path(f"/proc/{rank}/exe").exists()], [], done.text)
        saved, = out.glob("checkpoint-*")
        self.assertIn(f"--resume_from_checkpoint {saved}", done.stdout)


if __name__ == "__main__":
    main()
