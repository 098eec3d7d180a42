"""lockstep as a Python module: its calls give what the program gives, its errors say what to do, its page and its types are true."""
import ast
import enum
import io
import json
import linecache
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from python_package import SITE, PythonStory, install, program, rows_of
from small_job import make_model, make_rows
from story import ROOT, environment, main


def setUpModule():
    install()


class Python(PythonStory):
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
        pooled = opened.embed(rows, stage=["hidden"])
        self.assertTrue(numpy.array_equal(pooled[2:5], numpy.stack([pooled[2], pooled[3], pooled[4]])))
        with self.assertRaisesRegex(TypeError, "a vector a token"):
            opened.embed(rows, stage=["inputs"])[0:2]
        for copy in (numpy.array(found), numpy.array(found, copy=True), numpy.copy(found), torch.from_dlpack(numpy.array(found)).numpy()):
            copy[:] = -7
        self.assertTrue(numpy.array_equal(numpy.asarray(found), whole), "a copy is none")
        with self.assertRaises(ValueError):
            numpy.asarray(found, dtype=numpy.float64, copy=False)
        places = {found.numpy().ctypes.data, found.torch().data_ptr(), torch.from_dlpack(found).data_ptr(), found[0].ctypes.data}
        self.assertEqual(len(places), 1)
        kept = found.torch()
        del found
        opened.close()
        self.assertTrue(numpy.array_equal(kept.numpy(), whole))
        with self.assertRaises(lockstep.Error):
            opened.embed(rows)

    def test_what_a_model_is_asked_for_is_not_left_out(self):
        import lockstep
        heard = []
        with lockstep.Model(make_model(self.folder, "qwen2"), on_event=heard.append) as opened:
            asked = [{"my_question": "Say 2.", "imagez": ["a.png"]}]
            said = opened.generate(asked, max_new_tokens=3, columns={"my_question": "query"})
            self.assertEqual([row["response"] for row in said], [row["response"] for row in opened.generate([{"query": "Say 2."}], max_new_tokens=3)])
            self.assertIn("imagez", str([event for event in heard if event["event"] == "notice"]))
            for words in ({"max_samples": 1}, {"dataset_dir": "x"}):
                with self.assertRaisesRegex(TypeError, next(iter(words))):
                    opened.generate(asked, **words)
            for words in ({"no_such_flag": 1}, {"help": True}, {"speaker": "Chelsie"}):
                with self.assertRaises((TypeError, lockstep.Error)):
                    opened.generate([], **words)
            kept = opened.generate([{"query": "a", "id": 7, "metadata": {"page": [1]}}], max_new_tokens=1, do_sample=False, num_beams=1, top_p=0.5)
            self.assertEqual([kept[0]["id"], kept[0]["metadata"]], ["7", {"page": [1]}])
            told = [event["message"] for event in heard if event["event"] == "notice"]
            self.assertTrue(any("--top_p 0.5 has no effect" in text for text in told), told)
            self.assertTrue(any("--do_sample" in text for text in told), told)
            with self.assertRaisesRegex(TypeError, "model: "):
                lockstep.Model(self.folder / "qwen2", model="x")
            with self.assertRaisesRegex(TypeError, "help: "):
                lockstep.plan(help=True)
            with self.assertRaisesRegex(ValueError, "equals sign"):
                lockstep.Model(self.folder / "qwen2", adapters={"a=b": "x"})
            with self.assertRaisesRegex(ValueError, r"rows\[1\].query: expected text that UTF-8 can hold"):
                opened.generate([{"query": "a"}, {"query": "\ud800"}])
        # Asked from within what it waits for, a model would wait for ever.
        refused = []

        def again(_event):
            for ask in (lambda: held[0].generate([{"query": "a"}]), held[0].close):
                try:
                    ask()
                except RuntimeError as error:
                    refused.append(str(error))

        held = [lockstep.Model(self.folder / "qwen2", on_event=again)]
        held[0].generate([{"query": "a", "imagez": 1}], max_new_tokens=2)
        held[0].close()
        self.assertEqual(len(refused), 2 * len(refused[:1]))
        self.assertIn("its own on_event", refused[0])

    def test_a_program_without_standard_output_runs_jobs(self):
        model = make_model(self.folder, "qwen2")
        text = ("import sys\nsys.stdout = None\nimport lockstep\nassert lockstep.inspect(sys.argv[1])['problems'] == []\n"
                "class Out:\n    def write(self, text):\n        pass\nsys.stdout = Out()\n"
                "lockstep.plan(model=sys.argv[1], dataset=[{'query': 'caf\\u00e9', 'response': 'b'}] * 2)\nsys.stdout = None\n")
        process = program(self.folder, text, model)
        code, out, err = self.ended(process)
        self.assertEqual(code, 0, out + err)

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

    def test_rows_and_a_question_are_answered_without_files(self):
        import lockstep
        model = make_model(self.folder, "qwen2")
        done = lockstep.infer(model=model, input=[{"query": "Say 1."}, {"query": "Say 2."}], result_path="rows.jsonl", max_new_tokens=4)
        self.assertEqual((done["answered"], len(rows_of(Path("rows.jsonl")))), (2, 2))
        said = self.lockstep("infer", "--model", model, "--prompt", "Say 1.", "--max_new_tokens", 4, expect=0).stdout
        process = program(self.folder, "import json, lockstep\n"
                          "print(json.dumps(lockstep.infer(model='qwen2', prompt='Say 1.', max_new_tokens=4, on_event=lambda event: None)['response']))\n")
        code, out, err = self.ended(process)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out), said.removesuffix("\n"))  # and not printed besides
        for name in ("dataset", "val_dataset"):
            with self.assertRaisesRegex(TypeError, f"{name}: expected files, or rows as a list of dicts, found a dict"):
                lockstep.evaluate(model=model, **{name: {"query": "a", "response": "b"}})

    def test_bytes_are_media_and_no_text(self):
        from lockstep._rows import rows_as_json
        part = {"type": "image", "bytes": b"x"}
        for row, columns in (({"images": [b"x"]}, None), ({"Image": {"<image_00>": b"x"}}, None), ({"messages": [{"role": "user", "content": [part]}]}, None),
                             ({"videos": [{"frames": [b"x"], "fps": 2}]}, None), ({"picture": b"x"}, {"picture": "images"}), ({"picture": b"x"}, '{"picture": "image"}')):
            self.assertIn('"data:;base64,eA=="', rows_as_json([row], columns)[0])
        rows_as_json([{"query": "q", "raw": b"x"}])  # in a column that nobody reads, and which is told of
        for row, place in (({"query": b"x"}, "query"), ({"messages": [{"role": "user", "content": b"x"}]}, r"messages\[0\]\.content")):
            with self.assertRaisesRegex(TypeError, rf"rows\[0\]\.{place}: expected text, found bytes"):
                rows_as_json([row])

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
                 (lambda: lockstep.plan(model=model, dataste="x"), 2, "--dataset"),
                 # What a run starts of Python is of this Python's environment.
                 (lambda: lockstep.sft(model=model, tuner_type="full", dataset=make_rows(self.folder, images=False), report_to="mlflow", on_event=print), 2,
                  f"mlflow is not there for {Path(sys.executable).parent}")]
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

    def test_a_notice_names_the_line_that_asked(self):
        import lockstep
        model = make_model(self.folder, "qwen2")
        asked = [{"query": "a", "imagez": 1}]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            opened = lockstep.Model(model, quant_bits=4)
            for _ in range(2):
                opened.generate(asked, max_new_tokens=1)
            opened.embed(asked)
            for _ in range(2):  # once a line, and not once a program
                opened.generate(asked, max_new_tokens=1)
        notices = [one for one in told if issubclass(one.category, lockstep.Notice)]
        self.assertEqual({Path(one.filename).name for one in notices}, {Path(__file__).name}, told)
        self.assertEqual(len({one.lineno for one in notices if "imagez" in str(one.message)}), 3)
        self.assertEqual(len([one for one in notices if "imagez" in str(one.message)]), 3)
        self.assertTrue(any(linecache.getline(__file__, one.lineno).strip().startswith("opened = lockstep.Model") for one in notices), told)

    def test_keywords_become_the_words_of_the_command_line(self):
        import numpy
        import torch
        from lockstep._flags import words_of
        self.assertEqual(words_of({"model": Path("m"), "dtype": torch.bfloat16, "strict": True, "top_p": 0.1, "seed": numpy.int64(3), "learning_rate": 1e-5,
                                   "dataset": ["a.jsonl", Path("b.jsonl")], "device_map": {"a": 0}, "adapters": {"x": "dir"}, "stop": None,
                                   "max_memory": {0: "10GiB", "cpu": "1GiB"}, "prompt": "-1"}),
                         ["--model=m", "--torch_dtype=bfloat16", "--strict=true", "--top_p=0.1", "--seed=3", "--learning_rate=1e-05", "--dataset=a.jsonl",
                          "--dataset=b.jsonl", '--device_map={"a": 0}', "--adapters=x=dir", "--max_memory=0:10GiB,cpu:1GiB", "--prompt=-1"])
        class Kind(str, enum.Enum):
            LORA = "lora"
        self.assertEqual(words_of({"learning_rate": numpy.float64(1e-3), "tuner_type": Kind.LORA, "seed": torch.tensor(3), "top_k": numpy.array(2), "strict": numpy.True_}),
                         ["--learning_rate=0.001", "--tuner_type=lora", "--seed=3", "--top_k=2", "--strict=true"])
        with self.assertRaisesRegex(ValueError, "output_dir: .* byte of zero"):
            words_of({"output_dir": "a\0b"})
        for wrong in ({"seed": object()}, {"dataset": []}, {"model": b"m"}):
            with self.assertRaisesRegex(TypeError, next(iter(wrong))):
                words_of(wrong)

    def test_the_page_shows_what_runs(self):
        model = make_model(self.folder)
        model.rename("my-model")
        make_rows(self.folder, count=16)
        shutil.copy("0.png", "cat.png")
        page = (ROOT / "docs" / "python.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 2)
        code, out, err = self.ended(program(self.folder, "\n".join(blocks)))
        self.assertEqual(code, 0, out + err)

    def test_the_wheel_asks_for_what_it_needs(self):
        metadata, = SITE.glob("lockstep-*.dist-info/METADATA")
        asked = re.findall(r"^Requires-Dist: ([a-z]+)(?:==[\d.]+)?(; extra == 'tables')?$", metadata.read_text(), re.M)
        self.assertEqual(asked, [("torch", ""), ("numpy", ""), ("pyarrow", "; extra == 'tables'")])

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


if __name__ == "__main__":
    main()
