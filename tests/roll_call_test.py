"""No rank waits in silence: ranks killed, stopped and late, under every way to start them, and jobs that go on by themselves."""
import json
import os
import signal
import socket
import struct
import tempfile
import time
from pathlib import Path

from small_job import losses, make_model, make_rows, sft_words
from story import Story, finish, free_port, main, rank_of, start, variables_of

LONG = 100_000  # steps: more than a test waits for


def processes_of(mark):
    """{rank: pid} of the ranks that carry `mark` in their environment."""
    found = {}
    for entry in os.listdir("/proc"):
        variables = variables_of(entry) if entry.isdigit() else {}
        if variables.get("STORY_MARK") == mark and not is_agent(entry) and (rank := rank_of(entry)) is not None:
            found[rank] = int(entry)
    return found


def is_agent(pid):
    try:
        return "\0agent\0" in Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def alive(mark):
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if variables_of(pid).get("STORY_MARK") == mark]


def listening_port(pid):
    """The TCP port on which a process listens, if there is one."""
    try:
        inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    listens = "0A"
    ports = [int(words[1].rsplit(":", 1)[1], 16) for words in lines if words[3] == listens and f"socket:[{words[9]}]" in inodes]
    return ports[0] if ports else None


def cbor(value):
    """Of short texts, small numbers and small objects."""
    if isinstance(value, dict):
        return bytes([0xA0 + len(value)]) + b"".join(cbor(key) + cbor(one) for key, one in value.items())
    if isinstance(value, str):
        return bytes([0x78, len(value)]) + value.encode()
    return bytes([value])


def frame(message):
    """As agents frame their messages before they know each other."""
    body = cbor(message)
    return struct.pack("<I", len(body)) + body


class RollCall(Story):
    @classmethod
    def setUpClass(cls):
        shared = tempfile.TemporaryDirectory(prefix="lockstep_story_")
        cls.addClassCleanup(shared.cleanup)
        cls.model = make_model(Path(shared.name))
        cls.rows = make_rows(Path(shared.name))

    def begin(self, mark, *words, **env):
        return start(*words, env={"STORY_MARK": mark, **env})

    def until_step(self, run, step, process, seconds=60):
        """Waits until the run has logged a step."""
        log = run / "logging.jsonl"
        end = time.monotonic() + seconds
        over = False
        while time.monotonic() < end and not over:
            over = process.poll() is not None  # it may have logged the step all the same
            if log.exists() and max(losses(run), default=0) >= step:
                return
            time.sleep(0.05)
        self.fail(f"no step {step}: {finish(process, 5).text if process.poll() is not None else 'too slow'}")

    def sft(self, out, steps=LONG, **flags):
        return sft_words(self.model, self.rows, out, steps=steps, **flags)

    def hit(self, mark, process, rank, sig):
        os.kill(processes_of(mark)[rank], sig)
        return finish(process, 30)

    def test_a_killed_rank_is_named_with_its_call_and_nobody_stays(self):
        for rank in (0, 2):
            out, mark = self.folder / f"kill{rank}", f"kill{rank}-{os.getpid()}"
            process = self.begin(mark, *self.sft(out), "--nproc", 3)
            self.until_step(out, 3, process)
            done = self.hit(mark, process, rank, signal.SIGKILL)
            self.assertEqual(done.returncode, 6, done.text)
            self.assertIn(f"the job was ended: rank {rank} was killed (SIGKILL)", done.stderr)
            self.assertRegex(done.stderr, r"(all_gather|reduce_scatter|all_reduce|barrier)[^\n]*\"[a-z_., 0-9]+\"", done.text)
            self.assertNotIn("Connection closed", done.text)
            self.assertEqual(alive(mark), [])
            found = json.loads((out / "post_mortem" / "diagnosis.json").read_text())
            self.assertEqual((found["fault"], found["culprits"]), ("death", [rank]))
            self.assertEqual(len(list((out / "post_mortem").glob("rank_*.json"))), 3)

    def test_a_stopped_rank_is_named_and_killed(self):
        out, mark = self.folder / "stop", f"stop-{os.getpid()}"
        process = self.begin(mark, *self.sft(out), "--nproc", 3)
        self.until_step(out, 3, process)
        done = self.hit(mark, process, 1, signal.SIGSTOP)
        self.assertEqual(done.returncode, 6, done.text)
        self.assertIn("rank 1 has been stopped (SIGSTOP)", done.stderr)
        self.assertEqual(alive(mark), [])

    def test_a_launcher_that_is_killed_takes_its_ranks_along(self):
        out, mark = self.folder / "launcher", f"launcher-{os.getpid()}"
        process = self.begin(mark, *self.sft(out), "--nproc", 3)
        self.until_step(out, 3, process)
        process.kill()
        process.communicate()
        end = time.monotonic() + 10
        while alive(mark) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(alive(mark), [])

    def test_max_restarts_goes_on_from_the_last_checkpoint(self):
        whole = self.folder / "whole"
        done = finish(self.begin("", *self.sft(whole, steps=200, save_steps=20), "--nproc", 2))
        self.assertEqual(done.returncode, 0, done.text)
        out, mark = self.folder / "restarts", f"restarts-{os.getpid()}"
        process = self.begin(mark, *self.sft(out, steps=200, save_steps=20), "--nproc", 2, "--max_restarts", 1)
        self.until_step(out, 24, process)
        victim = processes_of(mark).get(1)
        if victim:  # else it was quicker than we are
            os.kill(victim, signal.SIGKILL)
        done = finish(process)
        self.assertEqual(done.returncode, 0, done.text)
        if victim:
            self.assertIn("restart 1 of 1", done.stderr)
        self.assertEqual(losses(out)[200], losses(whole)[200])  # to the last digit

    def test_ranks_of_another_launcher_have_an_agent_too(self):
        """The environment that torchrun gives, with rank 0 hosting the meeting point, and rank 0 is killed."""
        out, mark, port = self.folder / "foreign", f"foreign-{os.getpid()}", free_port()
        words = self.sft(out)
        ranks = [self.begin(mark, *words, RANK=r, LOCAL_RANK=r, WORLD_SIZE=3, LOCAL_WORLD_SIZE=3, MASTER_ADDR="127.0.0.1",
                            MASTER_PORT=port, TORCHELASTIC_ERROR_FILE=self.folder / f"error{r}.json") for r in range(3)]
        self.until_step(out, 3, ranks[0])
        ranks[0].kill()
        rest = [finish(process, 30) for process in ranks[1:]]
        ranks[0].communicate()
        self.assertEqual([done.returncode for done in rest], [6, 6], rest[0].text)
        for r in (1, 2):
            told = json.loads((self.folder / f"error{r}.json").read_text())["message"]["message"]
            self.assertTrue(told.startswith("rank 0 was killed (SIGKILL)"), told)  # which this test, its launcher, has not asked for yet
        end = time.monotonic() + 10
        while alive(mark) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(alive(mark), [])  # the agent as well

    def node(self, mark, node, port, *words, secret="one long random text"):
        return self.begin(mark, *words, RANK=node, WORLD_SIZE=2, NPROC_PER_NODE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                          LOCKSTEP_JOB_SECRET=secret)

    def test_two_nodes_tell_the_same(self):
        out, mark, port = self.folder / "nodes", f"nodes-{os.getpid()}", free_port()
        nodes = [self.node(mark, n, port, *self.sft(out)) for n in range(2)]
        self.until_step(out, 3, nodes[0])
        os.kill(processes_of(mark)[3], signal.SIGKILL)
        done = [finish(process, 30) for process in nodes]
        for one in done:
            self.assertEqual(one.returncode, 6, one.text)
            self.assertIn("rank 3 was killed (SIGKILL)", one.stderr)
        self.assertEqual(alive(mark), [])

    def test_strangers_on_the_network_end_nothing_and_keep_nobody_out(self):
        """Silent connections from the start, and then, in vain, the words that would end the job."""
        out, mark, port = self.folder / "strangers", f"strangers-{os.getpid()}", free_port()
        nodes = [self.node(mark, 0, port, *self.sft(out))]
        end, door = time.monotonic() + 30, None
        while door is None and time.monotonic() < end:
            door = listening_port(nodes[0].pid)
        strangers = [socket.create_connection(("127.0.0.1", door)) for _ in range(200)]
        self.addCleanup(lambda: [one.close() for one in strangers])
        nodes.append(self.node(mark, 1, port, *self.sft(out)))
        self.until_step(out, 3, nodes[0])
        for words in ([{"kind": "hello", "token": "any", "node": 1}], [{"kind": "hello", "node": 1, "nonce": "0" * 32}], []):
            strangers.append(socket.create_connection(("127.0.0.1", door)))
            for word in [*words, {"kind": "suspect"}, {"kind": "end", "exit_code": 6, "text": "forged"}, {"kind": "bye"}]:
                try:
                    strangers[-1].sendall(frame(word))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # hung up on already
        self.until_step(out, max(losses(out)) + 20, nodes[0])
        self.assertEqual([node.poll() for node in nodes], [None, None])
        os.kill(processes_of(mark)[3], signal.SIGKILL)  # and the agents have met all the same
        for one in [finish(process, 30) for process in nodes]:
            self.assertEqual(one.returncode, 6, one.text)
            self.assertIn("rank 3 was killed (SIGKILL)", one.stderr)
            self.assertNotIn("forged", one.text)
            self.assertNotIn("LOCKSTEP_JOB_SECRET", one.stderr)
        self.assertEqual(alive(mark), [])

    def test_nodes_whose_secrets_differ_say_so(self):
        for secrets, told in ((("one long random text", "another random text"), "LOCKSTEP_JOB_SECRET must be the same on all nodes"),
                              (("", ""), "LOCKSTEP_JOB_SECRET is not set: whoever can read this job's meeting point")):
            out, mark, port = self.folder / f"secret{len(secrets[0])}", f"secrets-{os.getpid()}", free_port()
            nodes = [self.node(mark, n, port, *self.sft(out, steps=30), secret=secrets[n]) for n in range(2)]
            done = [finish(process, 60) for process in nodes]
            self.assertEqual([one.returncode for one in done], [0, 0], done[0].text + done[1].text)
            self.assertEqual(done[0].stderr.count(told), 1, done[0].text)
        done = finish(self.node(mark, 0, port, *self.sft(self.folder / "short"), secret="hunter2"))
        self.assertEqual(done.returncode, 2, done.text)
        self.assertIn("LOCKSTEP_JOB_SECRET: expected at least 16 characters, found 7", done.stderr)
        self.assertNotIn("hunter2", done.text)

    def test_a_node_that_falls_silent_is_named(self):
        out, mark, port = self.folder / "silent", f"silent-{os.getpid()}", free_port()
        nodes = [self.node(mark, n, port, *self.sft(out)) for n in range(2)]
        self.until_step(out, 3, nodes[0])
        nodes[1].kill()
        nodes[1].communicate()
        done = finish(nodes[0], 30)
        self.assertEqual(done.returncode, 6, done.text)
        self.assertRegex(done.stderr, r"node 1 \(.*\) does not answer any more: ranks 2, 3|rank [23] was killed")
        self.assertEqual(alive(mark), [])

    def test_a_node_that_was_paused_names_itself(self):
        for away in (0, 1):
            out, mark, port = self.folder / f"paused{away}", f"paused{away}-{os.getpid()}", free_port()
            nodes = [self.node(mark, n, port, *self.sft(out)) for n in range(2)]
            self.until_step(out, 3, nodes[0])
            ranks = processes_of(mark)
            paused = [nodes[away].pid, ranks[2 * away], ranks[2 * away + 1]]
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            other = finish(nodes[1 - away], 60)
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
            own = finish(nodes[away], 60)
            self.assertEqual([other.returncode, own.returncode], [6, 6], other.text + own.text)
            self.assertRegex(other.stderr, rf"node {away} (\(.*\) )?does not answer any more")
            self.assertRegex(own.stderr, rf"node {away} (\(.*\) )?was away for ")
            self.assertNotRegex(own.stderr, rf"the job was ended: node {1 - away} ")
            self.assertEqual(alive(mark), [])

    def test_a_missing_rank_is_named_with_the_variable(self):
        out, mark, port = self.folder / "missing", f"missing-{os.getpid()}", free_port()
        ranks = [self.begin(mark, *self.sft(out, patience="600,start=12"), RANK=r, LOCAL_RANK=r, WORLD_SIZE=3, LOCAL_WORLD_SIZE=3,
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for r in range(2)]
        done = [finish(process, 40) for process in ranks]
        told = "".join(one.stderr for one in done)
        self.assertIn("rank 2 of 3 did not come to the meeting", told)
        self.assertIn("WORLD_SIZE says 3 ranks", told)
        self.assertNotEqual(done[0].returncode, 0)

    def test_a_guard_changes_no_number(self):
        last = {}
        for guard in ("off", "default", "strict"):
            out = self.folder / guard
            done = finish(self.begin("", *self.sft(out, steps=6, guard=guard), "--nproc", 3))
            self.assertEqual(done.returncode, 0, done.text)
            last[guard] = losses(out)
        self.assertEqual(last["off"], last["default"])
        self.assertEqual(last["off"], last["strict"])

    def test_patience_is_checked_before_anything_starts(self):
        for text, told in (("abc", "expected a number above 0"), ("600,sav=5", "did you mean save?"), ("-1", "expected a number above 0")):
            done = finish(start(*self.sft(self.folder / "p"), f"--patience={text}", "--nproc", 2))
            self.assertEqual(done.returncode, 2, done.text)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    main()
