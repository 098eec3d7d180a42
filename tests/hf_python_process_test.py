"""lockstep in the process of a Python program: beside torch and other threads, under torchrun, stopped, killed."""
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from python_package import SITE, PythonStory, install, program
from small_job import make_model, make_rows
from story import environment, main, rank_of


def setUpModule():
    install()


class PythonProcess(PythonStory):
    def test_other_threads_run_while_it_works_and_may_use_the_same_model(self):
        import lockstep
        opened = lockstep.Model(make_model(self.folder, "qwen2"))
        alone = opened.generate([{"query": "Count."}], max_new_tokens=2000)
        answers, beats, over = [], [], threading.Event()

        def beat():
            while not over.is_set():
                beats.append(time.monotonic())
                time.sleep(0.002)

        threads = [threading.Thread(target=lambda: answers.append(opened.generate([{"query": "Count."}], max_new_tokens=2000))) for _ in range(3)]
        clock = threading.Thread(target=beat)
        clock.start()
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        over.set()
        clock.join()
        self.assertEqual(answers, [alone] * 3)
        longest = max(later - earlier for earlier, later in zip(beats, beats[1:]))
        self.assertLess(longest, took / 4, "a thread of Python stood still")  # as for one of three answers

    def test_torch_goes_on_beside_it(self):
        make_model(self.folder, "qwen2")
        process = program(self.folder, TORCH_BESIDE)
        code, out, err = self.ended(process)
        self.assertEqual((code, out.split()[-1:], err), (0, ["done"], ""))

    def test_a_program_ends_though_a_thread_still_asks(self):
        make_model(self.folder, "qwen2")
        process = program(self.folder, "import lockstep, threading, time\nm = lockstep.Model('qwen2')\n"
                          "ask = lambda: m.generate([{'query': 'a'}] * 1000, max_new_tokens=4000)\n"
                          "threading.excepthook = lambda told: None\n"
                          "threading.Thread(target=ask, daemon=True).start()\ntime.sleep(0.5)\nprint('over')\n")
        self.assertEqual(self.ended(process), (0, "over\n", ""))

    def test_a_program_ends_though_a_daemon_thread_waits_for_a_job_or_a_model(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=40, images=False)
        sft = "lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=100000, on_event=told)"
        for work, until in ((sft, "begun.wait()"), ("[lockstep.Model('qwen2') for _ in range(1000)]", "time.sleep(0.3)")):
            with self.subTest(work):
                process = program(self.folder, "import lockstep, threading, time\nbegun = threading.Event()\nthreading.excepthook = lambda told: None\n"
                                  f"def told(event):\n  if event['event'] == 'step': begun.set()\n"
                                  f"threading.Thread(target=lambda: {work}, daemon=True).start()\n{until}\nprint('over')\n")
                self.assertEqual(self.ended(process), (0, "over\n", ""))
                self.assertEqual(self.left_of_it(), [])

    def test_a_forked_process_ends_at_once(self):
        make_model(self.folder, "qwen2")
        for end in ("sys.exit(0)", "del m\n  os._exit(0)"):
            with self.subTest(end):
                process = program(self.folder, "import lockstep, os, signal, sys\nm = lockstep.Model('qwen2')\nchild = os.fork()\nif child == 0:\n"
                                  f"  signal.alarm(30)\n  {end}\nprint(os.waitpid(child, 0)[1])\n")
                self.assertEqual(self.ended(process), (0, "0\n", ""))

    def test_a_process_that_is_forked_while_a_thread_asks_ends_at_once(self):
        make_model(self.folder, "qwen2")
        process = program(self.folder, "import lockstep, os, signal, sys, threading, time\nm = lockstep.Model('qwen2')\nthreading.excepthook = lambda told: None\n"
                          "ask = lambda: m.generate([{'query': 'a'}] * 1000, max_new_tokens=4000)\nthreading.Thread(target=ask, daemon=True).start()\n"
                          "time.sleep(0.5)\nchild = os.fork()\nif child == 0:\n  signal.alarm(30)\n  sys.exit(0)\nprint(os.waitpid(child, 0)[1])\n")
        self.assertEqual(self.ended(process), (0, "0\n", ""))

    def test_a_program_ends_though_a_callback_does_not_return(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=40, images=False)
        sft = "lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=100000, on_event=told)"
        answers = "lockstep.Model('qwen2', on_event=told).generate([{'query': 'a', 'imagez': 1}])"
        for work in (sft, answers):
            for stay in ("full.put(1)", "while True: time.sleep(0.001)"):  # never asks Python for anything again, or while it ends
                with self.subTest(f"{work} {stay}"):
                    process = program(self.folder, "import lockstep, queue, threading, time\nbegun, full = threading.Event(), queue.Queue(1)\nfull.put(1)\n"
                                      f"def told(event):\n  begun.set()\n  {stay}\n"
                                      f"threading.Thread(target=lambda: {work}, daemon=True).start()\nbegun.wait()\nprint('over')\n")
                    self.assertEqual(self.ended(process, timeout=120), (0, "over\n", ""))
                    self.wait_until_nothing_is_left()

    def test_a_program_that_is_not_told_of_its_children_has_results_all_the_same(self):
        make_model(self.folder, "qwen2")
        text = ("import lockstep, os, signal, threading, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
                "assert lockstep.inspect('qwen2')['problems'] == []\n"
                "try:\n  lockstep.inspect('nowhere')\nexcept lockstep.Error as error:\n  print(error.code)\n"
                "try:\n  lockstep.plan(model='qwen2', on_event=lambda e: os.killpg(int(open(f'/proc/self/task/{threading.get_native_id()}/children').read().split()[0]), 9))\n"
                "except lockstep.Error as error:\n  print(error.code, 'nobody knows how' in str(error))\n")
        self.assertEqual(self.ended(program(self.folder, text)), (0, "4\n70 True\n", ""))

    def test_ranks_of_torchrun_are_one_run(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=8, images=False)
        file = self.folder / "ranks.py"
        file.write_text("import lockstep, os, sys\ndone = lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=2, device='cpu',\n"
                        "                     gradient_accumulation_steps=1, on_event=lambda event: None)\n"
                        "sys.stdout.write(f\"{os.environ['RANK']} {done.get('steps')}\\n\")\n")  # in one piece: both write into one pipe
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(file)], cwd=self.folder, text=True,
                              capture_output=True, check=False, timeout=600, env=environment({"PYTHONPATH": SITE}))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 2", "1 None"])

    def test_torch_has_its_settings_again_when_a_deterministic_model_is_closed(self):
        import lockstep
        import torch
        model = make_model(self.folder, "qwen2")
        torch.backends.cudnn.benchmark = True
        self.addCleanup(setattr, torch.backends.cudnn, "benchmark", False)

        def settings():
            return (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark,
                    torch.utils.deterministic.fill_uninitialized_memory)

        before = settings()
        one, other = (lockstep.Model(model, deterministic=True) for _ in range(2))
        one.close()
        self.assertEqual(settings(), (True, True, False, False))
        other.close()
        self.assertEqual(settings(), before)

    def test_it_loads_before_torch_and_without_it(self):
        make_model(self.folder, "qwen2")
        process = program(self.folder, "import lockstep, sys\nm = lockstep.Model('qwen2')\nassert 'torch' not in sys.modules\n"
                          "v = m.embed([{'query': 'a'}])\nimport torch\nassert v.torch().sum() == torch.from_dlpack(v).sum()\n"
                          "maps = {line.split()[-1] for line in open('/proc/self/maps') if 'libtorch_cpu' in line}\nassert len(maps) == 1, maps\n")
        self.assertEqual(self.ended(process), (0, "", ""))

    def test_another_torch_is_refused_by_name(self):
        (self.folder / "torch").mkdir()
        (self.folder / "torch" / "__init__.py").write_text("__version__ = '2.9.1+cpu'\n")
        (self.folder / "torch" / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
        for first in ("", "import torch\n"):
            code, _, err = self.ended(program(self.folder, f"import sys\nsys.path.insert(0, {str(self.folder)!r})\n{first}import lockstep\n"))
            self.assertEqual(code, 1)
            self.assertRegex(err, r"ImportError: lockstep \S+ was built for torch 2\.11\.0, found torch 2\.9\.1 in ")
            self.assertIn("pip install torch==2.11.0", err)

    def test_control_c_ends_an_answer_and_the_model_goes_on(self):
        make_model(self.folder, "qwen2")
        process = program(self.folder, "import lockstep, sys\nm = lockstep.Model('qwen2')\nshort = m.generate([{'query': 'a'}], max_new_tokens=3)\n"
                          "print('ready')\ntry:\n  m.generate([{'query': 'a'}] * 400, max_new_tokens=4000)\n"
                          "except KeyboardInterrupt:\n  print('stopped')\n"
                          "assert m.generate([{'query': 'a'}], max_new_tokens=3) == short\nprint('again')\n")
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        self.assertEqual(process.stdout.readline(), "stopped\n")
        self.assertLess(time.monotonic() - sent, 2)
        self.assertEqual(self.ended(process), (0, "again\n", ""))

    def test_control_c_ends_a_run_with_a_checkpoint_and_a_kill_leaves_nothing(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=40, images=False)
        run = ("import lockstep, sys\ndef told(event):\n  if event['event'] == 'step': print('step', flush=True)\n"
               "  if event['event'] == 'saved': print('saved', event['path'], flush=True)\n"
               "lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=100000, save_steps=100000, logging_steps=1, nproc=2,\n"
               "             gradient_accumulation_steps=1, device='cpu', on_event=told)\n")
        # As a terminal sends it, to the whole group; and to the Python alone.
        for send in (lambda process: os.killpg(process.pid, signal.SIGINT), lambda process: process.send_signal(signal.SIGINT)):
            process = program(self.folder, run)
            self.assertEqual(process.stdout.readline(), "step\n")
            send(process)
            sent = time.monotonic()
            code, out, err = self.ended(process)
            self.assertLess(time.monotonic() - sent, 15)
            self.assertEqual(code, -signal.SIGINT, err)
            self.assertIn("KeyboardInterrupt", err)
            saved = re.search(r"^saved (.*)$", out, re.M)
            self.assertTrue(saved and Path(saved[1]).is_dir(), out)
            self.assertEqual(self.left_of_it(), [])
        # Each Ctrl-C counts, also while Python is at work for it: without a checkpoint then.
        interrupted = run.replace("def told(event):\n", "def told(event):\n  raise KeyboardInterrupt\n").replace("output_dir='out'", "output_dir='often'")
        code, out, err = self.ended(program(self.folder, interrupted))
        self.assertEqual(code, -signal.SIGINT, err)
        self.assertEqual([*Path("often").glob("**/checkpoint-*")], [])
        process = program(self.folder, run)
        self.assertEqual(process.stdout.readline(), "step\n")
        process.kill()
        self.ended(process)
        self.wait_until_nothing_is_left()

    def test_sigterm_ends_a_run_with_a_checkpoint_and_then_the_program(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=40, images=False)
        run = ("import lockstep, signal, sys\n{before}\ndef told(event):\n  if event['event'] == 'step': print('step', flush=True)\n"
               "  if event['event'] == 'saved': print('saved', event['path'], flush=True)\nassert lockstep.inspect('qwen2')['problems'] == []\n"
               "assert signal.getsignal(signal.SIGTERM) == before\n"
               "lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=100000, save_steps=100000, logging_steps=1, nproc=2,\n"
               "             gradient_accumulation_steps=1, device='cpu', on_event=told)\nprint('never')\n")
        for before, ends in (("before = signal.SIG_DFL", -signal.SIGTERM),
                             ("before = lambda *_: sys.exit(5)\nsignal.signal(signal.SIGTERM, before)", 5)):
            with self.subTest(before):
                process = program(self.folder, run.replace("{before}", before))
                self.assertEqual(process.stdout.readline(), "step\n")
                process.send_signal(signal.SIGTERM)
                if ends < 0:
                    process.send_signal(signal.SIGTERM)  # as often as it comes
                code, out, err = self.ended(process, timeout=120)
                self.assertEqual(code, ends, err)
                saved = re.search(r"^saved (.*)$", out, re.M)
                self.assertTrue(saved and Path(saved[1]).is_dir(), out)
                self.assertNotIn("never", out)
                self.assertEqual(self.left_of_it(), [])

    def wait_until_nothing_is_left(self):
        until = time.monotonic() + 10
        while self.left_of_it() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.left_of_it(), [])

    def left_of_it(self):
        """Processes whose working folder is this test's, but for ourselves."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and int(entry.name) != os.getpid() and os.readlink(entry / "cwd") == str(self.folder):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass
        return found

    def test_a_job_that_is_killed_is_told_so(self):
        import lockstep
        model, file = make_model(self.folder, "qwen2"), make_rows(self.folder, count=40, images=False)

        def kill(event):
            if event["event"] == "step":
                for entry in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split():
                    os.kill(int(entry), signal.SIGKILL)

        with self.assertRaises(lockstep.Error) as error:
            lockstep.sft(model=model, tuner_type="full", dataset=file, output_dir="out", max_steps=100_000, logging_steps=1, gradient_accumulation_steps=1, on_event=kill)
        self.assertEqual((error.exception.code, "SIGKILL" in str(error.exception)), (137, True), error.exception)

    def test_a_rank_that_dies_is_named(self):
        import lockstep
        model, file = make_model(self.folder, "qwen2"), make_rows(self.folder, count=40, images=False)

        def kill(event):
            if event["event"] != "step":
                return
            for launcher in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split():
                try:
                    for rank in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
                        if rank_of(rank) == 1:
                            os.kill(int(rank), signal.SIGKILL)
                except OSError:
                    continue  # an event of before they went

        with self.assertRaises(lockstep.Error) as error:
            lockstep.sft(model=model, tuner_type="full", dataset=file, output_dir="out", max_steps=100_000, logging_steps=1, gradient_accumulation_steps=1, nproc=2, device="cpu",
                         on_event=kill)
        self.assertEqual(error.exception.code, 6)
        self.assertRegex(str(error.exception), r"the job was ended: rank 1 (is gone|.*SIGKILL)")  # as its agent or its launcher saw it first


# Tensors from before, of meanwhile and of after; gradients, tensors without bytes, packed weights, workers that are forked.
TORCH_BESIDE = """
import os, sys, threading
import torch
from torch.utils.data import DataLoader, TensorDataset
before = torch.randn(300, 300)
packed = torch.randn(64, 64).to_mkldnn()
meta = torch.empty(5, 4, device="meta")
linear = torch.nn.Linear(300, 300)
expected = linear(before)
embedded = torch.nn.functional.embedding(torch.zeros(3, dtype=torch.long, device="meta"), meta).shape
import lockstep
model = lockstep.Model("qwen2")
rows = [{"query": f"Say {i}."} for i in range(6)]
vectors = model.embed(rows)
assert torch.equal(linear(before), expected)
assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()
linear(before).sum().backward()
assert torch.isfinite(linear.weight.grad).all()
assert torch.nn.functional.embedding(torch.zeros(3, dtype=torch.long, device="meta"), meta).shape == embedded
assert torch.equal(packed.to_dense().to_mkldnn().to_dense(), packed.to_dense())
del packed
working = threading.Thread(target=lambda: [model.generate(rows, max_new_tokens=30) for _ in range(3)])
working.start()
for _ in range(3):
    loaded = list(DataLoader(TensorDataset(torch.arange(4000.).view(1000, 4)), batch_size=50, num_workers=2))
    assert sum(float(batch[0].sum()) for batch in loaded) == 7998000.0
    grown = torch.cat([torch.randn(1000, 100) for _ in range(20)])
    assert grown.shape == (20000, 100)
working.join()
child = os.fork()
if child == 0:  # a model does not come along; what torch has made does
    try:
        model.generate(rows)
    except lockstep.Error as error:
        os._exit(0 if "fork" in str(error) and torch.equal(torch.ones(9000) * 2, torch.full((9000,), 2.)) else 2)
    os._exit(3)
assert os.waitpid(child, 0)[1] == 0
kept = vectors.torch() * 2
print("done")
"""

if __name__ == "__main__":
    main()
