"""Memory of a run: predicted before a weight is read, measured on every rank, told beside each other everywhere."""
import json
import re
import shutil

from report_test import Page
from small_job import make_model, make_rows, png, records, sft_words, wav
from story import Story, main

PHASES = ("load", "forward", "backward", "step", "save", "evaluate")


def unlike_rows(folder, audio=False):
    """Long texts without media, and short ones with a picture of many tiles, or with ten seconds of sound."""
    (folder / "wide.png").write_bytes(png(400, 300, (20, 180, 20)))
    (folder / "long.wav").write_bytes(wav(10))
    media = [{"query": "<image>What is it?", "response": "green", "images": ["wide.png"]}]
    if audio:
        media.append({"query": "<audio>What is it?", "response": "a tone", "audios": ["long.wav"]})
    rows = [{"query": "Say it." + " Again!" * 120, "response": "so"}] * 16 + media * (32 // len(media))
    (folder / "unlike.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "unlike.jsonl"


class Memory(Story):
    def train(self, family, rows=None, env=None, **flags):
        model = self.folder / family
        if not model.exists():
            make_model(self.folder, family)
        rows = rows or make_rows(self.folder, count=48, images=family != "qwen2")
        rows_to_judge = make_rows(self.folder, count=9, images=family != "qwen2", name="val.jsonl")
        out = self.folder / "out"
        done = self.lockstep(*sft_words(model, rows, out, steps=12, nproc=2, device="cpu", val_dataset=rows_to_judge,
                                        eval_steps=6, save_steps=6, **flags), env=env, expect=0)
        return out, done

    def check_against_forecast(self, out, done, devices):
        memory = json.loads((out / "memory.json").read_text())
        self.assertEqual(json.loads((out / "plan.json").read_text())["memory"], memory["predicted"])
        self.assertEqual([peak["device"] for peak in memory["peaks"]][:len(devices)], devices)
        self.assertEqual(len(memory["ranks"]), 2)
        for peak in memory["peaks"][:len(devices)]:
            # Never far above what is needed, and hardly ever below it.
            self.assertLessEqual(peak["measured"], 1.02 * peak["predicted"], peak)
            self.assertGreaterEqual(peak["measured"], 0.95 * peak["predicted"], peak)
            self.assertRegex(done.stdout, rf"(?m)^memory: {peak['device']} predicted [\d.]+ \wiB, measured [\d.]+ \wiB "
                                          rf"\(rank {peak['rank']}\)$")
        for rank in memory["ranks"]:
            for device in rank["since_start"]["devices"]:
                self.assertEqual(tuple(device["phases"]), PHASES)
                self.assertEqual(sum(device["by_use"].values()), device["peak"])
                self.assertEqual(device["peak"], max(phase["bytes"] for phase in device["phases"].values()))
            self.assertRegex(rank["since_start"]["batch"], r"^3 rows of \d+ tokens")
        return memory

    def test_what_was_measured_is_what_was_predicted(self):
        out, done = self.train("llava", report_to="tensorboard")
        memory = self.check_against_forecast(out, done, ["cpu"])
        for step in records(out).values():
            self.assertEqual(len(step["peak_bytes"]), 2)
            self.assertEqual(len(step["predicted_bytes"]), 2)
        logged = [json.loads(line) for line in (out / "logging.jsonl").read_text().splitlines()]
        logged = [line["memory_by_rank"] for line in logged if "memory_by_rank" in line]
        self.assertEqual(len(logged), 13)  # each step, and the end
        highest = max(line[0]["devices"][0]["peak"] for line in logged)
        self.assertLessEqual(highest, memory["ranks"][0]["since_start"]["devices"][0]["peak"])

        text = (out / "report.html").read_text()
        page = Page(text)
        self.assertEqual(page.open, [])
        self.assertEqual(page.classes["predicted"], 1)
        self.assertEqual(page.classes["measured"], 2)
        events = next((out / "runs").iterdir()).read_bytes()
        for tag in (b"memory/rank0/cpu_peak_gib", b"memory/rank1/cpu_alive_gib", b"memory/rank1/resident_gib"):
            self.assertIn(tag, events)

    def test_rows_whose_texts_and_media_are_long_in_different_rows(self):
        for family, recompute in (("internvl", "true"), ("minicpm_o_2_6", "false")):
            with self.subTest(family=family):
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                out, done = self.train(family, unlike_rows(self.folder, audio=family == "minicpm_o_2_6"), env={"MAX_NUM": 12},
                                       gradient_checkpointing=recompute)
                self.check_against_forecast(out, done, ["cpu"])

    def test_blocks_run_again_only_where_memory_has_no_room(self):
        def train(checkpointing, **flags):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            out, done = self.train("qwen2", virtual_devices=1, gradient_checkpointing=checkpointing, **flags)
            return out, done, self.check_against_forecast(out, done, ["virtual:0"])["predicted"]["devices"][0]["peak"]

        losses, peaks = {}, {}
        for word in ("true", "false"):
            out, _, peaks[word] = train(word)
            losses[word] = [step["loss"] for step in records(out).values()]
        between = (peaks["true"] + peaks["false"]) // 2
        out, done, peak = train("auto", memory_limit=between)
        kept, blocks = map(int, re.search(r"auto: (\d+) of (\d+) blocks keep what they made", done.stdout).groups())
        self.assertTrue(0 < kept < blocks, done.stdout)
        self.assertTrue(peaks["true"] < peak <= between, (peaks, peak))
        plan = json.loads((out / "plan.json").read_text())
        self.assertEqual(sum(step["recompute"] for step in plan["steps"]), blocks - kept)
        losses["auto"] = [step["loss"] for step in records(out).values()]
        self.assertEqual(losses["auto"], losses["true"])  # to the last bit
        self.assertEqual(losses["auto"], losses["false"])
        self.assertEqual(json.loads((out / "args.json").read_text())["gradient_checkpointing"], "auto")

        done = self.lockstep("plan", "--model", self.folder / "qwen2", "--gradient_checkpointing", "auto", "--nproc", 2,
                             "--virtual_devices", 1, "--memory_limit", between, "--tuner_type", "full", "--json", expect=0)
        self.assertIn("blocks keep what they made", done.stderr)

    def test_devices_of_a_rank_are_measured_apart(self):
        out, done = self.train("qwen2", virtual_devices=2, device_map="auto")
        memory = self.check_against_forecast(out, done, ["virtual:0", "virtual:1"])
        self.assertEqual(memory["predicted"]["host"] is None, memory["ranks"][0]["since_start"]["host"] is None)
        self.assertEqual(Page((out / "report.html").read_text()).classes["predicted"], 3)  # and the host

    def test_a_steady_run_is_not_warned_of(self):
        _, done = self.train("qwen2", deepspeed="zero2")
        self.assertFalse(re.search(r"memory grows|ranks differ in memory|were predicted", done.stdout), done.stdout)


if __name__ == "__main__":
    main()
