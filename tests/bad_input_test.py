"""What people get wrong: each is met with one clear message, the right exit code, and nothing half written."""
import json
import shutil

from small_job import make_model, make_rows, sft_words
from story import Story, main


class BadInput(Story):
    def setUp(self):
        super().setUp()
        self.model = make_model(self.folder)
        self.rows = make_rows(self.folder, count=12)
        self.out = self.folder / "out"

    def refused(self, code, *parts, words=None, env=None, wrote=False, **flags):
        """The run must end with `code` and one message that holds all parts; on two ranks."""
        flags = {"nproc": 2, "steps": 4, **flags}
        words = words or sft_words(flags.pop("model", self.model), flags.pop("rows", self.rows), self.out, **flags)
        done = self.lockstep(*words, env=env, expect=code)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        for part in parts:
            self.assertIn(part, done.stderr)
        if not wrote:
            self.assertFalse(self.out.exists(), "a run folder was begun")
        self.assertEqual(list(self.folder.glob("**/*.tmp-*")), [])
        return done

    def copy(self):
        model = self.folder / "copy"
        shutil.copytree(self.model, model)
        return model

    def add_row(self, text):
        with open(self.rows, "a") as out:
            out.write(text + "\n")

    def test_no_weights(self):
        model = self.copy()
        (model / "model.safetensors").unlink()
        self.refused(4, str(model), "model.safetensors", "found neither", model=model)

    def test_truncated_weights(self):
        model = self.copy()
        data = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(data[: len(data) // 2])
        self.refused(4, str(model / "model.safetensors"), "bytes", model=model)

    def test_a_config_that_does_not_fit_the_weights(self):
        model = self.copy()
        config = json.loads((model / "config.json").read_text())
        config["text_config"]["intermediate_size"] *= 2
        (model / "config.json").write_text(json.dumps(config))
        done = self.refused(4, "mlp", "intermediate_size", "expected", "found", model=model)
        self.assertEqual(done.stderr.count("["), done.stderr.count("]"))  # both shapes

    def test_a_missing_tensor_or_model(self):
        self.refused(4, "nowhere", model=self.folder / "nowhere")

    def test_an_unknown_family(self):
        model = self.copy()
        config = json.loads((model / "config.json").read_text())
        config.update(architectures=["MambaForCausalLM"], model_type="mamba")
        (model / "config.json").write_text(json.dumps(config))
        self.refused(4, "mamba", "llava", "qwen2", model=model)
        self.refused(2, "llav", "llava", "qwen2", words=["init", "--family", "llav", "--output_dir", self.out])

    def test_an_error_is_told_where_the_log_takes_no_more(self):
        self.out.mkdir()
        (self.out / "logging.jsonl").symlink_to("/dev/full")
        self.add_row(json.dumps({"query": "<image>What is it?", "response": "red", "images": ["gone.png"]}))
        self.refused(3, "rows.jsonl:13", "gone.png", strict="true", wrote=True, nproc=1, per_device_train_batch_size=16)

    def test_a_broken_row(self):
        self.add_row('{"messages": [{"role": "user" "content": "x"}]}')
        self.refused(3, "rows.jsonl:13", "column", strict="true")
        done = self.lockstep(*sft_words(self.model, self.rows, self.out, steps=4), expect=0)
        self.assertIn("1 rows cannot be read and are skipped", done.stdout)
        self.assertIn("rows.jsonl:13", done.stdout)

    def test_a_row_with_a_wrong_field(self):
        self.add_row('{"messages": "hello"}')
        self.refused(3, "rows.jsonl:13", "messages", "expected", "found", strict="true", wrote=True)

    def test_a_missing_image(self):
        self.add_row('{"query": "<image>What?", "response": "x", "images": ["gone.png"]}')
        self.refused(3, "rows.jsonl:13", "gone.png", strict="true", wrote=True, per_device_train_batch_size=8)
        shutil.rmtree(self.out)
        done = self.lockstep(*sft_words(self.model, self.rows, self.out, steps=4, nproc=2), expect=0)
        self.assertIn("1 rows could not be used so far", done.stdout)
        self.assertIn("gone.png", done.stdout)

    def test_a_corrupt_image(self):
        data = (self.folder / "0.png").read_bytes()
        (self.folder / "cut.png").write_bytes(data[:40])
        self.add_row('{"query": "<image>What?", "response": "x", "images": ["cut.png"]}')
        self.refused(3, "rows.jsonl:13", "cut.png", strict="true", wrote=True, per_device_train_batch_size=8)

    def test_a_missing_data_set(self):
        self.refused(3, "nothing.jsonl", rows=self.folder / "nothing.jsonl")

    def test_flags(self):
        base = ["sft", "--model", self.model, "--dataset", self.rows, "--output_dir", self.out]
        for code, parts, words in (
                (2, ("--lerning_rate", "--learning_rate"), ["--lerning_rate", "1"]),
                (2, ("--lr_scheduler_type", "cosine"), ["--lr_scheduler_type", "cosin"]),
                (2, ("zero3",), ["--deepspeed", "zero4"]),
                (2, ("full, lora", "adalora"), ["--tuner_type", "adalora"]),
                (2, ("--target_modules", "q_proj"), ["--tuner_type", "lora", "--target_modules", "q_porj"]),
                (2, ("--sequence_parallel_size", "one rank"), ["--sequence_parallel_size", "2"]),
                (2, ("int8", "bfloat16"), ["--torch_dtype", "int8"]),
                (2, ("--max_steps",), ["--max_steps", "0"]),
                (2, ("--train", "projector"), ["--train", "projektor"]),
                (2, ("nothing is left to train",), ["--freeze_llm", "true"]),
                (2, ("no parameter", "--freeze_parameters"), ["--freeze_parameters", "language_modell"]),
                (4, ("no whole checkpoint",), ["--resume_from_checkpoint", "true"])):
            with self.subTest(words):
                self.refused(code, *parts, words=[*base, *words])

    def test_flags_without_use_are_said(self):
        done = self.lockstep(*sft_words(self.model, self.rows, self.out, steps=1, attn_impl="flash_attn", sequence_parallel_size=1), expect=0)
        self.assertIn("--attn_impl flash_attn makes no difference", done.stdout)
        self.assertIn("--sequence_parallel_size 1 makes no difference", done.stdout)

    def test_a_wrong_world(self):
        words = sft_words(self.model, self.rows, self.out)
        self.refused(2, "RANK", words=words, env={"RANK": 2, "LOCAL_RANK": 2, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1})

    def test_an_unknown_verb(self):
        self.refused(2, "trian", "did you mean train?", words=["trian"])

    def test_gradients_that_are_not_finite(self):
        done = self.lockstep(*sft_words(self.model, self.rows, self.out, steps=20, nproc=2, learning_rate="1e30", warmup_steps=0,
                                        max_grad_norm=0), expect=7)
        self.assertEqual(done.stderr.count("error:"), 1, done.text)
        for part in ("step ", "loss", "gradient", "rank"):
            self.assertIn(part, done.stderr)

    def test_a_file_of_flags(self):
        (self.folder / "args.json").write_text(json.dumps({"model": str(self.model), "dataset": [str(self.rows)], "max_steps": 50,
                                                           "add_version": False, "output_dir": str(self.out), "eval_steps": None}))
        done = self.lockstep("sft", self.folder / "args.json", "--max_steps", 2, expect=0)
        self.assertIn("2 steps", done.stdout)
        (self.folder / "args.yaml").write_text("model: x\n")
        self.lockstep("sft", self.folder / "args.yaml", expect=2)


if __name__ == "__main__":
    main()
