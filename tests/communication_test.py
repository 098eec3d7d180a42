"""What a run's communication cost is counted exactly, told at its end, and written where people and programs look."""
import json
import re

from small_job import make_model, make_rows, sft_words
from story import Story, main

STEPS = 4
BYTES = {"float32": 4}


def table(text):
    """The printed table, by kind and operation: the words of each line from its calls on."""
    return {(found[1], found[2]): found[3].split()
            for found in re.finditer(r"(?m)^  (\S+(?: \S+)*) +(all_gather|reduce_scatter|all_reduce) +(\d.*)$", text)}


def by_name(lines, operation):
    return {line["name"]: line for line in lines if line["operation"] == operation and line["of"] == "parameters"}


class Communication(Story):
    def trained(self, ranks, *words):
        out = self.folder / f"out{ranks}"
        model = make_model(self.folder, "qwen2")
        rows = make_rows(self.folder, images=False)
        done = self.lockstep(*sft_words(model, rows, out, steps=STEPS, nproc=ranks, save_steps=1000), "--shared_weights", "false", *words,
                             expect=0)
        return out, done

    def check(self, ranks):
        out, done = self.trained(ranks)
        figures = json.loads((out / "communication.json").read_text())
        self.assertEqual(figures["ranks"], ranks)
        units = {unit["name"]: unit for unit in json.loads((out / "plan.json").read_text())["units"]}
        gathers, grads = (by_name(figures["labels"], operation) for operation in ("all_gather", "reduce_scatter"))
        total = 0
        for name, unit in units.items():
            whole = unit["padded"] * BYTES["float32"]
            gathered, reduced = gathers[f"{name} gather"], grads[f"{name} grad"]
            self.assertEqual(gathered["bytes"], gathered["calls"] * whole, name)
            self.assertEqual(gathered["calls"] % STEPS, 0, name)
            self.assertIn(gathered["calls"] // STEPS, (1, 2), name)  # forward; again for backward unless still there
            self.assertEqual(reduced["bytes"], STEPS * whole, name)
            total += gathered["bytes"]
        kinds = {(line["name"], line["operation"]): line for line in figures["kinds"]}
        gather, grad = kinds["gather", "all_gather"], kinds["grad", "reduce_scatter"]
        self.assertEqual(gather["bytes"], total)
        self.assertEqual(grad["bytes"], STEPS * 4 * sum(unit["padded"] for unit in units.values()))
        for line in (gather, grad):
            self.assertGreaterEqual(line["busy_seconds"], line["exposed_seconds"])
            self.assertAlmostEqual(line["algorithm_bandwidth"], line["bytes"] / line["busy_seconds"], delta=1)
            self.assertAlmostEqual(line["bus_bandwidth"] / line["algorithm_bandwidth"], (ranks - 1) / ranks)
            self.assertLess(line["share_of_run"], 1)
        printed = table(done.stdout)
        self.assertEqual(printed["gather", "all_gather"][0], str(gather["calls"]))
        self.assertIn(("grad", "reduce_scatter"), printed)
        self.assertEqual(done.stdout.count(f"communication of {ranks} ranks"), 1)
        final = json.loads((out / "logging.jsonl").read_text().splitlines()[-1])
        self.assertEqual(final["communication"]["kinds"], figures["kinds"])
        page = (out / "report.html").read_text()
        self.assertIn("<h2>Communication</h2>", page)
        self.assertIn(">gather<small>all_gather</small>", page)
        return out

    def test_figures_of_two_ranks_are_exact_and_told(self):
        self.check(2)

    def test_figures_of_four_ranks_are_exact_and_told(self):
        self.check(4)

    def test_weights_that_stand_in_memory_once_are_trained_to_the_same_bits(self):
        """Both ways, each going on from the other's checkpoint on another number of ranks."""
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        ways = {"shared": "true", "gathered": "false"}
        weights, held = {}, {}
        for dtype in ("float32", "bfloat16"):
            for name, way in ways.items():
                out = self.folder / f"{name}-{dtype}"
                done = self.lockstep(*sft_words(model, rows, out, steps=STEPS, nproc=3, save_steps=STEPS, torch_dtype=dtype), "--shared_weights", way,
                                     expect=0)
                self.assertEqual(bool(re.search(r"(?m)^  gather  ", done.text)), name == "gathered", done.text)
                self.assertEqual(json.loads((out / "plan.json").read_text())["options"]["shared_weights"], name == "shared")
                weights[name] = (out / f"checkpoint-{STEPS}" / "model.safetensors").read_bytes()
                held[name] = json.loads((out / "memory.json").read_text())["peaks"][0]["measured"]
            self.assertEqual(weights["shared"], weights["gathered"], dtype)
            self.assertLess(held["shared"], held["gathered"], dtype)
            for name, other in (("shared", "gathered"), ("gathered", "shared")):
                out = self.folder / f"{name}-{dtype}"
                self.lockstep(*sft_words(model, rows, out, steps=2 * STEPS, nproc=2, save_steps=STEPS, torch_dtype=dtype), "--shared_weights",
                              ways[other], "--resume_from_checkpoint", out / f"checkpoint-{STEPS}", expect=0)
                weights[name] = (out / f"checkpoint-{2 * STEPS}" / "model.safetensors").read_bytes()
            self.assertEqual(weights["shared"], weights["gathered"], f"{dtype}, gone on")

    def test_one_rank_has_nothing_to_tell(self):
        out, done = self.trained(1)
        self.assertNotIn("communication of", done.text)
        self.assertFalse((out / "communication.json").exists())
        self.assertNotIn("<h2>Communication</h2>", (out / "report.html").read_text())

    def test_each_label_or_nothing_when_asked(self):
        model = make_model(self.folder, "qwen2")
        rows = make_rows(self.folder, count=6, images=False)
        words = ["eval", "--model", model, "--val_dataset", rows, "--nproc", 2, "--deepspeed", "zero3", "--shared_weights", "false",
                 "--predict_with_generate", "false"]
        done = self.lockstep(*words, "--comm_figures", "full", expect=0)
        self.assertRegex(done.stdout, r"(?m)^  \S*layers\.1 gather +all_gather +\d+ ")
        self.assertNotIn("communication of", self.lockstep(*words, "--comm_figures", "off", expect=0).text)
        figures = json.loads(self.lockstep(*words, "--json", expect=0).stdout)["communication"]
        self.assertIn("gather", [line["name"] for line in figures["kinds"]])
        self.assertNotIn("labels", figures)
        wrong = self.lockstep(*words, "--comm_figures", "all", expect=2)
        self.assertIn("--comm_figures", wrong.stderr)

    def test_answers_stand_alone_on_stdout(self):
        model = make_model(self.folder, "qwen2")
        done = self.lockstep("infer", "--model", model, "--prompt", "Hello", "--max_new_tokens", 4, "--nproc", 2, expect=0)
        self.assertNotIn("communication of", done.stdout)
        self.assertIn("communication of 2 ranks", done.stderr)


if __name__ == "__main__":
    main()
