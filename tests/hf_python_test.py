"""lockstep as a Python module: it gives what the program gives, shares torch's memory and libraries, and lets itself be stopped."""
import ast
import importlib.util
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from small_job import make_model, make_rows
from story import BINARY, ROOT, Story, environment, main

SITE = ROOT / "build" / "python_package"  # what the wheel installs


def setUpModule():
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


class Python(Story):
    maxDiff = None

    def setUp(self):
        super().setUp()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)  # where relative paths of rows begin

    def ended(self, process, timeout=60):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"still running after {timeout} s\n{out}\n{err}")
        return process.returncode, out, err

    def test_answers_are_those_of_infer(self):
        import lockstep
        from PIL import Image
        model, file = make_model(self.folder), make_rows(self.folder, count=9)
        rows = rows_of(file)
        with file.open("a") as more:
            more.write('{"nothing": "that is a row"}\n{"query": "<image>Gone?", "images": ["gone.png"]}\n')
        every = rows_of(file)
        flags = {"max_new_tokens": 12, "temperature": 0.7, "top_k": 40, "seed": 5, "batch_size": 4}
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        self.lockstep("infer", "--model", model, "--val_dataset", file, "--result_path", "answers.jsonl", *words, expect=0)
        expected = rows_of(Path("answers.jsonl"))
        with lockstep.Model(model, device="cpu") as opened:
            answers = opened.generate(every, **flags)
            # Where a row stands is told in other words.
            for theirs in (answers, expected):
                for row in theirs:
                    row.pop("where", None)
                    row["error"] = re.sub(r"\S*rows(\.jsonl:|\[)\d+\]?", "ROW", row.get("error", ""))
            self.assertEqual(answers, expected)
            self.assertEqual(sum(row["response"] is None for row in answers), 2)
            # The same pictures as bytes, and as PIL has them.
            held = [{**row, "images": [kind(Path(name)) for name in row["images"]]} if "images" in row else row
                    for kind, row in zip([Path.read_bytes, Image.open, lambda path: path] * 3, rows)]
            spoken = [row["response"] for row in opened.generate(held, **flags)]
            self.assertEqual(spoken, [row["response"] for row in expected[:9]])
            self.assertEqual(opened.generate([]), [])
            with self.assertRaises(lockstep.Error) as refused:
                opened.generate(every, strict=True)
            self.assertIn("rows[9]", str(refused.exception))

    def test_vectors_are_those_of_embed_and_shared_without_a_copy(self):
        import lockstep
        import numpy
        import torch
        model, file = make_model(self.folder), make_rows(self.folder, count=10)
        rows = rows_of(file)
        opened = lockstep.Model(model, device="cpu")
        for number, flags in enumerate(({}, {"pooling": "last", "normalize": True, "batch_size": 3}, {"stage": "inputs"})):
            with self.subTest(flags):
                words = [word for name, value in flags.items() for word in (f"--{name}", str(value).lower())]
                self.lockstep("embed", "--model", model, "--dataset", file, "--output", f"out{number}", *words, expect=0)
                expected = [numpy.array(row["embedding"], numpy.float32) for row in rows_of(Path(f"out{number}", "embeddings.jsonl"))]
                found = opened.embed(rows, **flags)
                self.assertEqual(len(found), 10)
                for i, vectors in enumerate(expected):
                    self.assertTrue(numpy.array_equal(found[i], vectors), i)
                whole = numpy.concatenate([vectors.reshape(-1, found.width) for vectors in expected])
                self.assertTrue(numpy.array_equal(numpy.asarray(found), whole))
                self.assertEqual(found.shape, whole.shape)
        places = {found.numpy().ctypes.data, found.torch().data_ptr(), torch.from_dlpack(found).data_ptr(), found[0].ctypes.data}
        self.assertEqual(len(places), 1)
        kept = found.torch()
        del found
        opened.close()
        self.assertTrue(numpy.array_equal(kept.numpy(), whole))
        with self.assertRaises(lockstep.Error):
            opened.embed(rows)

    def test_a_row_without_a_vector_is_not_passed_over(self):
        import lockstep
        with lockstep.Model(make_model(self.folder, "qwen2")) as opened:
            found = opened.embed([{"query": "a"}, {"wrong": 1}, {"query": "b"}])
            self.assertEqual((len(found), found.rows, list(found.errors)), (3, [0, 2], [1]))
            self.assertEqual(found[2].shape, (found.width,))
            for whole in (found.numpy, lambda: found[1]):
                with self.assertRaises(lockstep.Error) as refused:
                    whole()
                self.assertIn("rows[1]", str(refused.exception))

    def test_a_run_has_the_losses_of_the_program_whatever_its_ranks(self):
        import lockstep
        model, file = make_model(self.folder, "qwen2"), make_rows(self.folder, count=16, images=False)
        flags = {"learning_rate": 1e-3, "max_steps": 4, "gradient_accumulation_steps": 1, "logging_steps": 1, "device": "cpu", "tensorboard": None}
        words = [word for name, value in flags.items() if value is not None for word in (f"--{name}", value)]
        for ranks in (1, 2):
            self.lockstep("sft", "--model", model, "--dataset", file, "--output_dir", f"theirs{ranks}", "--add_version", "false", "--nproc", ranks,
                          *words, expect=0)
            expected = [row["loss"] for row in rows_of(Path(f"theirs{ranks}", "logging.jsonl")) if "loss" in row]
            events = []
            done = lockstep.sft(model=model, tuner_type="full", dataset=rows_of(file), output_dir=Path(f"ours{ranks}"), add_version=False, nproc=ranks,
                                on_event=events.append, **flags)
            losses = [event["loss"] for event in events if event["event"] == "step"]
            self.assertEqual([float(f"{loss:.9g}") for loss in losses], expected)
            self.assertEqual((done["steps"], done["interrupted"]), (4, False))
            self.assertEqual(json.loads(Path(done["last_checkpoint"], "trainer_state.json").read_text())["global_step"], 4)
            self.assertIn("ended", [event["event"] for event in events])
        # Stopped by who listens: after the step that it is in, with a checkpoint.
        done = lockstep.sft(model=model, tuner_type="full", dataset=[str(file)], output_dir="stopped", on_event=lambda event: event["event"] == "step",
                            **{**flags, "max_steps": 10_000})
        self.assertTrue(done["interrupted"])
        self.assertTrue(Path(done["last_checkpoint"]).is_dir())

    def test_figures_and_plans_are_those_of_the_program(self):
        import lockstep
        model, file = make_model(self.folder, "qwen2"), make_rows(self.folder, count=6, images=False)
        done = self.lockstep("eval", "--model", model, "--val_dataset", file, "--json", "true", expect=0)
        expected, printed = json.loads(done.stdout), io.StringIO()
        found = lockstep.evaluate(model=model, val_dataset=file, on_event=lambda event: printed.write(event["text"]))
        self.assertEqual({**found, "seconds": 0}, {**expected, "seconds": 0})
        self.assertIn("note: first row, ", printed.getvalue())
        expected = json.loads(self.lockstep("plan", "--model", model, "--nproc", 2, "--json", expect=0).stdout)
        self.assertEqual(lockstep.plan(model=model, tuner_type="full", nproc=2, on_event=lambda event: None), expected)
        expected = json.loads(self.lockstep("inspect", model, "--json", expect=0).stdout)
        self.assertEqual(lockstep.inspect(model), expected)
        self.assertEqual(lockstep.Model(model).inspect(verify=True), expected)
        # Files on several ranks.
        self.assertEqual(lockstep.infer(model=model, val_dataset=file, result_path="a.jsonl", max_new_tokens=4, nproc=2)["answered"], 6)
        self.assertEqual(lockstep.embed(model=model, dataset=file, output="vectors", nproc=2)["rows"], 6)

    def test_errors_say_what_to_do(self):
        import lockstep
        model = make_model(self.folder, "qwen2")
        with self.assertRaises(lockstep.Error) as error:
            lockstep.Model(self.folder / "gone")
        self.assertEqual(error.exception.code, 4)
        self.assertTrue(error.exception.hint)
        again = pickle.loads(pickle.dumps(error.exception))
        self.assertEqual((str(again), again.code), (str(error.exception), 4))
        opened = lockstep.Model(model)
        wrong = [(lambda: opened.generate([{"query": "a"}], temprature=1), 2, "--temperature"),
                 (lambda: opened.generate([{"query": "a"}], torch_dtype="float32"), 2, "--torch_dtype"),
                 (lambda: lockstep.Model(model, nproc=2), 2, "lockstep infer and lockstep embed"),
                 (lambda: lockstep.sft(model=model, tuner_type="full", dataset="gone.jsonl", on_event=print), 3, "gone.jsonl"),
                 (lambda: lockstep.sft(model=model, tuner_type="full", dataset="gone.jsonl", nproc=2, on_event=lambda event: None), 3, "gone.jsonl"),
                 (lambda: lockstep.plan(model=model, dataste="x"), 2, "--dataset")]
        for call, code, text in wrong:
            with self.assertRaises(lockstep.Error) as error:
                call()
            self.assertEqual(error.exception.code, code, error.exception)
            self.assertIn(text, str(error.exception))
        for rows, text in (({"query": "a"}, "a dict"), ([1], r"rows\[0\]"), ([{"images": [object()]}], r"rows\[0\].images\[0\]"),
                           ([{"query": "a", "x": {1: 2}}], r"rows\[0\].x")):
            with self.assertRaisesRegex(TypeError, text):
                opened.generate(rows)
        # Of a callback: what it raises ends the job, and is raised.
        with self.assertRaises(ZeroDivisionError):
            lockstep.sft(model=model, tuner_type="full", dataset=[{"query": "a", "response": "b"}] * 4, output_dir="out", on_event=lambda event: 1 / 0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            lockstep.Model(model, load_in_4bit=None, vision_tower=None, quant_bits=4)
        self.assertTrue(any(issubclass(one.category, lockstep.Notice) for one in told), told)

    def test_keywords_become_the_words_of_the_command_line(self):
        import numpy
        import torch
        from lockstep._flags import words_of
        self.assertEqual(words_of({"model": Path("m"), "dtype": torch.bfloat16, "strict": True, "top_p": 0.1, "seed": numpy.int64(3), "learning_rate": 1e-5,
                                   "dataset": ["a.jsonl", Path("b.jsonl")], "device_map": {"a": 0}, "adapters": {"x": "dir"}, "stop": None,
                                   "max_memory": {0: "10GiB", "cpu": "1GiB"}, "prompt": "-1"}),
                         ["--model=m", "--torch_dtype=bfloat16", "--strict=true", "--top_p=0.1", "--seed=3", "--learning_rate=1e-05", "--dataset=a.jsonl",
                          "--dataset=b.jsonl", '--device_map={"a": 0}', "--adapters=x=dir", "--max_memory=0:10GiB,cpu:1GiB", "--prompt=-1"])
        for wrong in ({"seed": object()}, {"dataset": []}, {"model": b"m"}):
            with self.assertRaisesRegex(TypeError, next(iter(wrong))):
                words_of(wrong)

    def test_other_threads_run_while_it_works_and_may_use_the_same_model(self):
        import lockstep
        opened = lockstep.Model(make_model(self.folder, "qwen2"))
        alone = opened.generate([{"query": "Count."}], max_new_tokens=200)
        answers, beats, over = [], [], threading.Event()

        def beat():
            while not over.is_set():
                beats.append(time.monotonic())
                time.sleep(0.002)

        threads = [threading.Thread(target=lambda: answers.append(opened.generate([{"query": "Count."}], max_new_tokens=200))) for _ in range(3)]
        clock = threading.Thread(target=beat)
        clock.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        clock.join()
        self.assertEqual(answers, [alone] * 3)
        longest = max(later - earlier for earlier, later in zip(beats, beats[1:]))
        self.assertLess(longest, 1, "a thread of Python stood still")

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
        self.assertEqual(self.ended(process, timeout=30), (0, "over\n", ""))

    def test_ranks_of_torchrun_are_one_run(self):
        make_model(self.folder, "qwen2")
        make_rows(self.folder, count=8, images=False)
        file = self.folder / "ranks.py"
        file.write_text("import lockstep, os, sys\ndone = lockstep.sft(model='qwen2', tuner_type='full', dataset='rows.jsonl', output_dir='out', max_steps=2, device='cpu',\n"
                        "                     gradient_accumulation_steps=1, on_event=lambda event: None)\n"
                        "sys.stdout.write(f\"{os.environ['RANK']} {done.get('steps')}\\n\")\n")  # in one piece: both write into one pipe
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(file)], cwd=self.folder, text=True,
                              capture_output=True, check=False, timeout=120, env=environment({"PYTHONPATH": SITE}))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 2", "1 None"])

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
        process = program(self.folder, run)
        self.assertEqual(process.stdout.readline(), "step\n")
        process.kill()
        self.ended(process)
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
            launcher = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()[0]
            for rank in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
                if "RANK=1" in Path(f"/proc/{rank}/environ").read_text().split("\0"):
                    os.kill(int(rank), signal.SIGKILL)

        with self.assertRaises(lockstep.Error) as error:
            lockstep.sft(model=model, tuner_type="full", dataset=file, output_dir="out", max_steps=100_000, logging_steps=1, gradient_accumulation_steps=1, nproc=2, device="cpu",
                         on_event=kill)
        self.assertEqual(error.exception.code, 6)
        self.assertRegex(str(error.exception), r"the job was ended: rank 1 .*SIGKILL")

    def test_the_page_shows_what_runs(self):
        model = make_model(self.folder)
        model.rename("my-model")
        make_rows(self.folder, count=16)
        shutil.copy("0.png", "cat.png")
        page = (ROOT / "docs" / "python.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 2)
        code, out, err = self.ended(program(self.folder, "\n".join(blocks)), timeout=120)
        self.assertEqual(code, 0, out + err)

    def test_types_are_shipped_and_hold(self):
        run = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder / "cache"]
        done = subprocess.run([*run, "-p", "lockstep"], cwd=SITE, capture_output=True, text=True, check=False, env=environment({"MYPYPATH": SITE}))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (self.folder / "user.py").write_text("import lockstep\nm = lockstep.Model('m', dtype='bfloat16')\n"
                                             "text: str = m.generate([{'query': 'a'}], max_new_tokens=3)[0]['response']\n"
                                             "m.generate([{'query': 'a'}], max_new_tokens='3')\nm.embed(5)\nlockstep.sfd()\n")
        done = subprocess.run([*run, "user.py"], cwd=self.folder, capture_output=True, text=True, check=False, env=environment({"MYPYPATH": SITE}))
        wrong = re.findall(r"^user\.py:(\d+): error", done.stdout, re.M)
        self.assertEqual(wrong, ["4", "5", "6"], done.stdout + done.stderr)
        # The compiled half has the names that its stub says. (mypy's own comparison takes nanobind's functions for none.)
        import lockstep
        stub = ast.parse((SITE / "lockstep" / "_core.pyi").read_text()).body
        named = {node.name: node for node in stub if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        said = {*named, *(node.target.id for node in stub if isinstance(node, ast.AnnAssign))}
        self.assertEqual(said, {name for name in vars(lockstep._core) if not name.startswith("_")})
        methods = {node.name for node in named["Model"].body if not node.name.startswith("_")}
        self.assertEqual(methods, {name for name in vars(lockstep._core.Model) if not name.startswith("_")})


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
