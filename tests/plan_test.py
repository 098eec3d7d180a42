"""What `lockstep plan` says before a weight is loaded: the parts of its JSON, advice that holds when it is taken, and the
same plan in the run that follows."""
import json
import re

from small_job import make_model, make_rows, sft_words
from story import ROOT, Story, main

CONFIGS = ROOT / "configs"
GiB = 1 << 30


class Plan(Story):
    def plan(self, *words):
        return json.loads(self.lockstep("plan", *words, "--json", expect=0).stdout)

    def peak(self, plan):
        """Of the device that needs most, with what its runtime takes."""
        devices = plan["memory"]["devices"]
        return max(phase["bytes"] for device in devices for phase in device["phases"].values()) + plan["memory"]["context_bytes"]

    def test_the_json_has_every_part(self):
        plan = self.plan("--model", CONFIGS / "Qwen2.5-VL-7B", "--nproc", 8, "--device_memory", "80GiB")
        self.assertEqual(list(plan), ["options", "units", "steps", "components", "memory", "advice"])
        self.assertEqual(plan["options"]["world"], 8)
        self.assertEqual([d["name"] for d in plan["memory"]["devices"]], ["cuda:0"])
        self.assertEqual(plan["memory"]["devices"][0]["capacity"], 80 * GiB)
        self.assertGreater(plan["memory"]["context_bytes"], GiB // 2)
        self.assertEqual(set(plan["memory"]["devices"][0]["phases"]),
                         {"load", "forward", "backward", "step", "save", "evaluate"})
        self.assertTrue(plan["advice"]["fits"])
        self.assertEqual(plan["advice"]["peak"], self.peak(plan))

    def test_the_advice_holds_when_it_is_taken(self):
        job = {"--model": CONFIGS / "Qwen2.5-7B", "--nproc": 4, "--device_memory": "80GiB", "--deepspeed": "zero0",
               "--gradient_checkpointing": "false", "--per_device_train_batch_size": 4}
        words = lambda flags: [word for pair in flags.items() for word in pair]
        advice = self.plan(*words(job))["advice"]
        self.assertFalse(advice["fits"])
        self.assertEqual(len(advice["changes"]), 3, advice)
        times = [change["time"] for change in advice["changes"]]
        self.assertEqual(times, sorted(times))
        for change in advice["changes"]:
            self.assertLessEqual(change["peak"], 80 * GiB)
            changed = self.plan(*words({**job, **dict(flag.split(" ", 1) for flag in change["flags"])}))
            self.assertTrue(changed["advice"]["fits"], change)
            self.assertAlmostEqual(self.peak(changed) / change["peak"], 1, delta=0.01, msg=change)

    def test_a_job_that_fits_is_told_its_room(self):
        words = ["--model", CONFIGS / "Qwen2.5-7B", "--nproc", 8, "--device_memory", "80GiB", "--deepspeed", "zero3"]
        advice = self.plan(*words)["advice"]
        self.assertTrue(advice["fits"])
        self.assertEqual(advice["lighter_stage"]["flags"], ["--deepspeed zero2"])
        largest = advice["largest_batch"]
        self.assertTrue(self.plan(*words, "--batch_size", largest)["advice"]["fits"])
        self.assertFalse(self.plan(*words, "--batch_size", 2 * largest)["advice"]["fits"])

    def test_a_run_keeps_the_same_plan(self):
        model, rows = make_model(self.folder), make_rows(self.folder, count=12)
        words = sft_words(model, rows, self.folder / "out", steps=1, nproc=2, memory_limit="1GiB", save_strategy="no")
        self.lockstep(*words, expect=0)
        kept = json.loads((self.folder / "out" / "plan.json").read_text())
        said = self.plan(*words[1:])
        self.assertEqual(list(kept), list(said))
        # Both take off what their process holds besides, pages of its libraries that come and go included, and what the limit leaves is for
        # tensors.
        run, plan = (one["memory"]["devices"][0].pop("capacity") for one in (kept, said))
        for one in (kept, said):
            one["advice"].pop("capacity")
        self.assertTrue(2**29 < run < 2**30 - 2**25 and abs(run - plan) < 2**27, (run, plan))
        for part in said:
            self.assertEqual(kept[part], said[part], part)

    def test_a_limit_means_the_same_to_a_plan_and_to_a_run(self):
        # Beside this model the pages of libraries that come and go are little.
        model, rows = make_model(self.folder, "qwen2", size="small"), make_rows(self.folder, count=12, images=False)
        words = sft_words(model, rows, self.folder / "out", steps=1, device="cpu", nproc=1, save_strategy="no")
        memory = self.plan(*words[1:], "--memory_limit", "2GiB")["memory"]["devices"][0]
        own = 2**31 - memory["capacity"]
        for limit, code in ((own + memory["peak"] // 4, 5), (own + 2 * memory["peak"] + 2**25, 0)):
            with self.subTest(limit=limit):
                run = self.lockstep(*words, "--overwrite_output_dir", "true", "--memory_limit", limit)
                self.assertEqual(run.returncode, code, run.text)
                plan = self.lockstep("plan", *words[1:], "--memory_limit", limit, expect=0).stdout
                self.assertIn("fits, " if code == 0 else "does not fit: lacks", plan)
        for verb in (words, ["plan", *words[1:]]):  # less than the process alone
            self.assertIn("before there is a weight", self.lockstep(*verb, "--memory_limit", "8MiB", expect=5).stderr)
        # What ranks share is no tensor, and the process holds it all the same.
        words = sft_words(model, rows, self.folder / "two", steps=2, device="cpu", nproc=2, save_strategy="no", deepspeed="zero2")
        memory = self.plan(*words[1:], "--memory_limit", "2GiB")["memory"]
        own = 2**31 - memory["devices"][0]["capacity"]
        beside = memory["process_bytes"] + memory["waiting_bytes"]
        self.assertGreater(beside, 2**24)
        self.lockstep(*words, "--memory_limit", own + memory["devices"][0]["peak"], expect=5)
        limit = own + memory["devices"][0]["peak"] + beside + 2**25
        self.lockstep(*words, "--overwrite_output_dir", "true", "--memory_limit", limit, expect=0)
        for rank in json.loads((self.folder / "two" / "memory.json").read_text())["ranks"]:
            self.assertLess(rank["resident_peak_bytes"], limit)

    def test_longer_rows_need_more(self):
        model = make_model(self.folder, "qwen2")
        short, long = self.folder / "short.jsonl", self.folder / "long.jsonl"
        short.write_text('{"query": "Hi", "response": "Ho"}\n' * 8)
        long.write_text('{"query": "Hi", "response": "Ho"}\n' * 7 + json.dumps({"query": "Hi", "response": "Ho " * 400}))
        peaks = [self.peak(self.plan("--model", model, "--dataset", rows)) for rows in (short, long)]
        self.assertGreater(peaks[1], 1.2 * peaks[0])

    def test_people_read_a_table_and_a_picture(self):
        page = self.folder / "plan.html"
        said = self.lockstep("plan", "--model", CONFIGS / "LLaVA-1.5-7B", "--nproc", 2, "--device_memory", "40GiB",
                             "--report", page, expect=0).stdout
        for words in ("language_model.model.layers.0-31 ", "at its peak", "by phase", "does not fit", "the cheapest first"):
            self.assertIn(words, said)
        for words in ("<title>Plan of LLaVA-1.5-7B for 2 ranks</title>", "cuda:0", "language_model.model.layers.0-31"):
            self.assertIn(words, page.read_text())

    def test_pages_show_what_is_printed(self):
        for page in ("README.md", "README.zh.md", "docs/plan.md"):
            text = (ROOT / page).read_text()
            shown = re.findall(r"```\n\$ lockstep (plan --model configs/.*)\n((?:.+\n|\n)*?)```", text)
            self.assertEqual(len(shown), 1, page)
            command, lines = shown[0]
            said = self.lockstep(*command.split(), cwd=ROOT, expect=0).stdout.splitlines()
            for line in lines.splitlines():
                if line not in ("…", ""):
                    self.assertIn(line, said, page)

    def test_flags_that_cannot_be_meant(self):
        model = CONFIGS / "Qwen2.5-7B"
        for words, expected in [(["--device_memory", "80 apples"], "80 apples"),
                                (["--device_memory", "80GiB", "--device", "cpu"], "--device cpu"),
                                (["--world", "0"], "--world"),
                                (["--batch_size", "0"], "from 1 to 65536"),
                                (["--deepspeed", "zero7"], "zero7"),
                                (["--train", "vision"], "vision"),
                                (["--memory_limit", "-1"], "-1")]:
            with self.subTest(words=words):
                self.assertIn(expected, self.lockstep("plan", "--model", model, *words, expect=2).stderr)


if __name__ == "__main__":
    main()
