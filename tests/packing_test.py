"""Rows behind one another in one line, in bins, or beside rows of their length: the same losses as with padding, less work, the same
rows after a resume, and the memory that was predicted."""
import json
import re
import shutil

from families_test import ENV, make_rows as make_mixed_rows
from small_job import losses, make_model, make_rows, png, records, sft_words
from story import Story, main, sampled

FAMILIES = ("qwen2", "llava", "qwen2_5_vl", "minicpm_o_2_6", "qwen2_5_omni")
WAYS = {"plain": {}, "padding_free": {"padding_free": "true"},
        "packing": {"packing": "true", "packing_length": 300, "per_device_train_batch_size": 20},
        "sequential": {"packing": "true", "packing_length": 300, "packing_strategy": "sequential", "per_device_train_batch_size": 20}}


def uneven_rows(folder, count=60, pictures=True):
    """From a few words to a few hundred, some with a picture."""
    (folder / "one.png").write_bytes(png(40, 40, (220, 20, 20)))
    rows = []
    for i in range(count):
        picture = pictures and i % 3 == 0
        row = {"query": ("<image>" if picture else "") + "Say it." + " Again!" * (7 * i % 61), "response": f"number {i}"}
        rows.append({**row, "images": ["one.png"]} if picture else row)
    path = folder / "uneven.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Packing(Story):
    def train(self, name, model, rows, env=None, **flags):
        out = self.folder / name
        words = sft_words(model, rows, out, **{"nproc": 2, "save_strategy": "no", "device": "cpu", **flags})
        return out, self.lockstep(*words, env=env, expect=0)

    def test_the_same_rows_give_the_same_losses_however_they_are_laid_out(self):
        """A step sees all rows: which of them share a line is then the only difference."""
        for family in sampled(FAMILIES):
            model = make_model(self.folder, family)
            rows = make_rows(self.folder, images=False) if family == "qwen2" else make_mixed_rows(self.folder, family)
            found = {}
            for way, flags in WAYS.items():
                out, _ = self.train(f"{family} {way}", model, rows, ENV.get(family), steps=4,
                                    **{"per_device_train_batch_size": 12, "max_length": 512, **flags})
                found[way] = records(out)
            for way in WAYS:
                with self.subTest(family=family, way=way):
                    for step, record in found[way].items():
                        self.assertEqual(record["tokens_seen"], found["plain"][step]["tokens_seen"])
                        for key in ("loss", "grad_norm"):
                            plain = found["plain"][step][key]
                            self.assertAlmostEqual(record[key], plain, delta=1e-5 * max(1, abs(plain)), msg=f"{key} of step {step}")
                    last = found[way][4]
                    if way != "plain":
                        self.assertEqual(last["tokens_computed"], last["tokens_seen"])
            self.assertGreater(found["plain"][4]["tokens_computed"], 1.05 * found["plain"][4]["tokens_seen"])

    def test_every_stage_gives_the_same_bits(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder)
        found = {}
        for stage in ("zero0", "zero1", "zero2", "zero3"):
            out, _ = self.train(stage, model, rows, steps=5, deepspeed=stage, packing="true", max_length=400, per_device_train_batch_size=2)
            found[stage] = losses(out)
            self.assertEqual(found[stage], found["zero0"], stage)

    def test_adapters_train_alike(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder, count=24)
        found = {}
        for way in ("plain", "padding_free"):
            out, _ = self.train("lora " + way, model, rows, steps=4, max_length=512, per_device_train_batch_size=12, tuner_type="lora",
                                lora_dropout=0.1, freeze_vit="true", freeze_aligner="true", **WAYS[way])
            found[way] = losses(out)
        for step, loss in found["plain"].items():
            self.assertAlmostEqual(found["padding_free"][step], loss, delta=1e-5)

    def test_bins_are_the_same_after_a_resume_with_other_ranks(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder)
        flags = {"packing": "true", "packing_length": 400, "max_length": 400, "num_train_epochs": 2, "save_strategy": "steps",
                 "save_steps": 2, "save_total_limit": 30, "nproc": 2, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
        out, whole = self.train("whole", model, rows, steps=-1, **flags)
        bins = re.search(r"60 rows of \d+ tokens in (\d+) bins of 400 \(([\d.]+) % of them filled\)", whole.stdout)
        self.assertIsNotNone(bins, whole.text)
        self.assertGreater(float(bins[2]), 90)
        self.assertRegex(whole.stdout, r"measure rows +100% +60/60")
        for ranks, batch, accumulation in ((2, 1, 2), (1, 4, 1), (3, 1, 1)):
            again = self.folder / f"again{ranks}{batch}"
            shutil.copytree(out, again)
            for checkpoint in again.glob("checkpoint-*"):
                if checkpoint.name != "checkpoint-2":
                    shutil.rmtree(checkpoint)
            _, done = self.train(again.name, model, rows, steps=-1, resume_from_checkpoint="true",
                                 **{**flags, "nproc": ranks, "per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation})
            last = max(again.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
            state = json.loads((last / "trainer_state.json").read_text())
            self.assertEqual((state["epoch"], state["lockstep"]["samples_seen"]), (2.0, 120), done.text)
            if ranks * batch * accumulation == 4:
                for step, loss in losses(out).items():
                    self.assertAlmostEqual(losses(again)[step], loss, delta=0 if ranks == 2 else 1e-5)
        for other in ({"packing_length": 300}, {"packing_strategy": "sequential"}, {"packing": "false", "packing_length": None}):
            words = sft_words(model, rows, again, steps=-1, resume_from_checkpoint="true", **{**flags, **other})
            refused = self.lockstep(*words, expect=2)
            self.assertRegex(refused.stderr, r"has its rows in \d+ bins .* now they would be .*: some would be lost, others repeated")

    def test_orders_by_length_leave_little_padding_and_go_on_as_they_began(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder)
        waste = {}
        for way in ("dataset_shuffle", "group_by_length", "group_by_modality_length"):
            out, _ = self.train(way, model, rows, steps=-1, num_train_epochs=1, per_device_train_batch_size=2, save_strategy="steps", **{way: "true"})
            last = records(out)[max(records(out))]
            self.assertEqual(last["samples_seen"], 60)
            waste[way] = last["tokens_computed"] / last["tokens_seen"]
        self.assertLess(waste["group_by_length"], 1.1, waste)
        self.assertLess(waste["group_by_modality_length"], 1.15, waste)
        self.assertGreater(waste["dataset_shuffle"], 1.2, waste)
        again = self.folder / "group_by_modality_length"
        for checkpoint in again.glob("checkpoint-*"):
            if checkpoint.name != "checkpoint-4":
                shutil.rmtree(checkpoint)
        self.train(again.name, model, rows, steps=-1, num_train_epochs=1, per_device_train_batch_size=3, nproc=1, save_strategy="steps",
                   group_by_modality_length="true", resume_from_checkpoint="true")
        last = max(again.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        self.assertEqual(json.loads((last / "trainer_state.json").read_text())["lockstep"]["samples_seen"], 60)

    def test_memory_is_what_was_predicted(self):
        for family in ("llava", "minicpm_o_2_6"):
            model, rows = make_model(self.folder, family), uneven_rows(self.folder, count=80)
            lines = rows.read_text().splitlines(keepends=True)
            rows.write_text("".join(sorted(lines, key=len, reverse=True)))  # the first batch is the largest that there can be
            for way in ("padding_free", "packing"):
                flags = {"padding_free": {"padding_free": "true", "per_device_train_batch_size": 6, "dataset_shuffle": "false"},
                         "packing": {"packing": "true", "packing_length": 900, "per_device_train_batch_size": 2}}[way]
                out, done = self.train(f"{family} {way}", model, rows, steps=-1, num_train_epochs=2, val_dataset=rows, eval_steps=3,
                                       per_device_eval_batch_size=4, max_length=700, **flags)
                peaks = json.loads((out / "memory.json").read_text())["peaks"]
                for peak in peaks:
                    with self.subTest(family=family, way=way, device=peak["device"]):
                        self.assertLessEqual(peak["measured"], 1.02 * peak["predicted"], done.stdout)
                        self.assertGreaterEqual(peak["measured"], 0.93 * peak["predicted"], done.stdout)

    def test_a_batch_in_one_line_is_split_where_memory_is_short(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder)
        flags = {"steps": 3, "packing": "true", "packing_length": 600, "max_length": 400, "per_device_train_batch_size": 4}
        free, _ = self.train("free", model, rows, **flags)
        predicted = json.loads((free / "memory.json").read_text())["peaks"][0]["predicted"]
        tight, done = self.train("tight", model, rows, virtual_devices=1, memory_limit=f"{int(predicted * 0.6) // 1024}KiB", **flags)
        self.assertIn("such batches are run in parts", done.stdout)
        for step, loss in losses(free).items():
            self.assertAlmostEqual(losses(tight)[step], loss, delta=1e-5)

    def test_rows_that_cannot_be_used_are_in_no_bin_and_named(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder, count=12)
        rows.write_text(rows.read_text() + json.dumps({"query": "<image>x", "response": "y", "images": ["none.png"]}) + "\n")
        _, done = self.train("skipping", model, rows, steps=2, packing="true", max_length=400)
        self.assertRegex(done.stdout, r"1 rows cannot be used and are in no bin .*uneven.jsonl:13.*none.png")
        words = sft_words(model, rows, self.folder / "strict", packing="true", max_length=400, strict="true", nproc=2)
        self.assertIn("uneven.jsonl:13", self.lockstep(*words, expect=3).stderr)

    def test_what_contradicts_itself_is_refused_by_name(self):
        model, rows = make_model(self.folder, "qwen2"), uneven_rows(self.folder, count=6, pictures=False)
        for flags, said in (({"packing_length": 9}, "--packing_length 9 is of bins"),
                            ({"packing": "true", "group_by_length": "true"}, "--group_by_length has nothing to order"),
                            ({"group_by_length": "true", "group_by_modality_length": "true"}, "two orders of the same rows"),
                            ({"packing": "true", "packing_strategy": "worst"}, "--packing_strategy")):
            self.assertIn(said, self.lockstep(*sft_words(model, rows, self.folder / "no", **flags), expect=2).stderr)

    def test_a_plan_knows_of_bins(self):
        model, rows = make_model(self.folder), uneven_rows(self.folder)
        said = self.lockstep("plan", "--model", model, "--dataset", rows, "--packing", "true", "--packing_length", 900, "--max_length", 400,
                             "--nproc", 1, expect=0).stdout
        self.assertIn("as often as a bin of 900 tokens holds each", said)


if __name__ == "__main__":
    main()
