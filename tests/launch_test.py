"""Ranks that others start: torchrun's variables, NPROC_PER_NODE, and what is left behind when one fails."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from small_job import losses, make_model, make_rows, sft_words
from story import BINARY, Story, environment, finish, free_port, main, start


def ranks_of(words):
    """Processes whose command line holds the folder of this test."""
    found = subprocess.run(["pgrep", "-f", "--", words], capture_output=True, text=True, check=False)
    return found.stdout.split()


class Launch(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder)

    def start_ranks(self, words, size=2, **more):
        port = free_port()
        return [start(*words, env={"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                                   **{key: value.format(rank=rank) for key, value in more.items()}})
                for rank in range(size)]

    def test_torchrun_variables_make_ranks(self):
        out = self.folder / "out"
        done = [finish(process) for process in self.start_ranks(sft_words(self.model, self.rows, out, steps=3))]
        self.assertEqual([d.returncode for d in done], [0, 0], done[0].text + done[1].text)
        self.assertEqual(done[1].stdout + done[1].stderr, "")
        own = self.folder / "own"
        self.lockstep(*sft_words(self.model, self.rows, own, steps=3, nproc=2), expect=0)
        self.assertEqual(losses(out), losses(own))

    def test_an_error_is_printed_once_and_left_where_torchrun_looks(self):
        words = sft_words(self.folder / "nowhere", self.rows, self.folder / "out")
        errors = str(self.folder / "error{rank}.json")
        done = [finish(process) for process in self.start_ranks(words, TORCHELASTIC_ERROR_FILE=errors)]
        self.assertEqual([d.returncode for d in done], [4, 4])
        self.assertEqual((done[0].stderr + done[1].stderr).count("error:"), 1, done[0].text + done[1].text)
        message = json.loads((self.folder / "error1.json").read_text())["message"]["message"]
        self.assertIn("nowhere", message)

    def test_nproc_per_node_starts_ranks(self):
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "out", steps=2), env={"NPROC_PER_NODE": 3}, expect=0)
        self.assertIn("3 ranks", done.stdout)

    def test_nodes_of_ms_swift_meet(self):
        own = self.folder / "own"
        self.lockstep(*sft_words(self.model, self.rows, own, steps=2, nproc=4), expect=0)
        out, port = self.folder / "out", free_port()
        nodes = [start(*sft_words(self.model, self.rows, (out, self.folder / "other")[node], steps=2),
                       env={"NNODES": 2, "NODE_RANK": node, "NPROC_PER_NODE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                            "LOCKSTEP_JOB_SECRET": "known to both nodes"})
                 for node in range(2)]
        done = [finish(process) for process in nodes]
        self.assertEqual([d.returncode for d in done], [0, 0], done[0].text + done[1].text)
        self.assertEqual(done[1].stdout + done[1].stderr, "")
        self.assertEqual(losses(out), losses(own))
        self.assertIn(f"was given {self.folder / 'other'}, and rank 0 {out}", done[0].text)

    def test_ranks_that_are_dealt_to_nodes_in_turn_find_their_agents(self):
        meeting = {"MASTER_ADDR": "127.0.0.1", "LOCKSTEP_JOB_SECRET": "known to both nodes"}
        for name, of_rank in (("mpi", lambda rank: {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_LOCAL_RANK": rank // 2,
                                                    "OMPI_COMM_WORLD_LOCAL_SIZE": 2}),
                              ("slurm", lambda rank: {"SLURM_PROCID": rank, "SLURM_NTASKS": 4, "SLURM_LOCALID": rank // 2, "SLURM_NODEID": rank % 2,
                                                      "SLURM_NNODES": 2, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": 1, "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
                                                      "SLURM_DISTRIBUTION": "cyclic"})):
            port = free_port()
            ranks = [start(*sft_words(self.model, self.rows, self.folder / name, steps=2, patience="30,start=20"),
                           env={**meeting, "MASTER_PORT": port, **of_rank(rank)}) for rank in range(4)]
            done = [finish(process) for process in ranks]
            self.assertEqual([d.returncode for d in done], [0] * 4, "\n".join(d.text for d in done))
            self.assertEqual(len(losses(self.folder / name)), 2)

    def test_nodes_that_were_started_differently_are_told_at_once(self):
        def nodes(*of_nodes):
            port, out = free_port(), self.folder / "out"
            started = [start(*sft_words(self.model, self.rows, out, steps=2, patience="600,start=60"),
                             env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCKSTEP_JOB_SECRET": "known to both nodes", **node}) for node in of_nodes]
            return [finish(process) for process in started]

        begun = time.time()
        first = {"NNODES": 2, "NODE_RANK": 0, "NPROC_PER_NODE": 2}
        for other, said in (({"NNODES": 3, "NODE_RANK": 1, "NPROC_PER_NODE": 2}, "as one of"),
                            ({"NNODES": 2, "NODE_RANK": 1, "NPROC_PER_NODE": 1}, "as one of|are both rank 1, of [24] and of [24] ranks")):
            done = nodes(first, other)
            self.assertEqual([d.returncode for d in done], [6, 6], done[0].text + done[1].text)
            for one in done:
                self.assertIn("give every host the same NNODES", one.text)
            self.assertRegex(done[0].text + done[1].text, said)  # whoever sees it first
        three = {"NNODES": 3, "NPROC_PER_NODE": 1}
        done = nodes(*({**three, "NODE_RANK": node} for node in (0, 1, 1)))
        self.assertEqual([d.returncode for d in done], [6, 6, 6], "\n".join(d.text for d in done))
        self.assertIn("are both rank 1", "\n".join(d.text for d in done))
        self.assertLess(time.time() - begun, 60, "none of them has waited for the start to pass")

    def test_a_place_that_hosts_do_not_share_is_refused_before_the_first_row(self):
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("nothing may be mounted here")
        own = self.folder / "own"
        own.mkdir()
        apart = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs "{own}" && exec "$@"', "sh"]
        for words in (["embed", "--dataset", self.rows, "--output", own / "vectors"], ["infer", "--val_dataset", self.rows, "--result_path", own / "answers.jsonl"]):
            variables = {"NNODES": 2, "NPROC_PER_NODE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "LOCKSTEP_JOB_SECRET": "known to both nodes"}
            nodes = [subprocess.Popen([*apart[:6 * node], str(BINARY), *map(str, words), "--model", str(self.model)], env=environment({**variables, "NODE_RANK": node}),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) for node in range(2)]
            done = [finish(node, timeout=90) for node in nodes]
            self.assertEqual([one.returncode for one in done], [2, 2], done[0].text + done[1].text)
            self.assertIn(f"{words[3]}: {own}", done[0].text + done[1].text)
            self.assertIn("is not there, or another one, on rank 1's host", done[0].text + done[1].text)

    def test_a_network_interface_that_is_not_there_is_named(self):
        done = self.lockstep(*sft_words(self.model, self.rows, self.folder / "out", steps=2, nproc=2, transport="gloo"), env={"GLOO_SOCKET_IFNAME": "nope0"},
                             expect=2)
        self.assertIn("GLOO_SOCKET_IFNAME=nope0: expected a network interface of this host", done.text)
        self.assertIn("lo", done.text)

    def test_a_launcher_and_nproc_that_disagree_are_refused(self):
        words = sft_words(self.model, self.rows, self.folder / "out", nproc=4)
        done = [finish(process) for process in self.start_ranks(words)]
        self.assertEqual([d.returncode for d in done], [2, 2])
        self.assertIn("--nproc 4", done[0].stderr)

    def test_ranks_started_with_other_flags_are_told_apart(self):
        words = sft_words(self.model, self.rows, self.folder / "out")
        port = free_port()
        ranks = [start(*words, *extra, env={"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                                            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                 for rank, extra in enumerate(([], ["--freeze_llm", "true"]))]
        done = [finish(process) for process in ranks]
        self.assertEqual([d.returncode for d in done], [2, 2], done[0].text + done[1].text)
        self.assertIn("do not agree on the plan", done[0].stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_no_rank_outlives_a_killed_launcher(self):
        out = self.folder / "orphans"
        process = start(*sft_words(self.model, self.rows, out, steps=100000, save_steps=90000, nproc=2))
        while "step " not in (line := process.stdout.readline()):
            self.assertNotEqual(line, "")
        self.assertGreaterEqual(len(ranks_of(str(out))), 3)
        for pid in ranks_of(str(out)):  # without GPUs they are copies of the launcher: no process was begun with a rank's variables
            self.assertNotIn(b"LOCAL_RANK=", Path(f"/proc/{pid}/environ").read_bytes())
        os.kill(process.pid, signal.SIGKILL)
        for _ in range(100):
            if not ranks_of(str(out)):
                break
            time.sleep(0.1)
        self.assertEqual(ranks_of(str(out)), [])
        finish(process)


if __name__ == "__main__":
    main()
