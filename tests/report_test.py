"""A rank that is killed leaves a post-mortem, which `lockstep report` tells in the terminal, as JSON and as a page."""
import json
import os
import re
import signal
import time
from html.parser import HTMLParser
from pathlib import Path

from small_job import make_model, make_rows, sft_words
from story import Story, finish, main, rank_of, start

VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """Checks that every tag is closed, and counts elements by class."""

    def __init__(self, text):
        super().__init__()
        self.open, self.classes, self.tags = [], {}, {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name in (dict(attributes).get("class") or "").split():
            self.classes[name] = self.classes.get(name, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def rank_processes(launcher):
    """The process ids of a launcher's ranks, by rank."""
    return {rank_of(child): int(child) for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()}


class Report(Story):
    def killed_run(self):
        """Three ranks of which one is killed after a few steps; returns the run's folder and how it ended."""
        out = self.folder / "out"
        process = start(*sft_words(make_model(self.folder, "qwen2"), make_rows(self.folder, images=False), out,
                                   steps=1000000, save_steps=1000000, nproc=3))
        lines = []
        while sum("loss" in line for line in lines) < 4:
            lines.append(process.stdout.readline())
            if not lines[-1]:
                self.fail("".join(lines) + finish(process).text)
        killed = rank_processes(process.pid)[1]
        os.kill(killed, signal.SIGSTOP)
        time.sleep(0.5)  # until the others wait for it
        os.kill(killed, signal.SIGKILL)
        return out, finish(process)

    def test_a_killed_rank_is_told_and_drawn(self):
        out, ended = self.killed_run()
        self.assertEqual(ended.returncode, 6, ended.text)
        named = re.search(r"lockstep report --post-mortem (\S+)", ended.stderr)
        self.assertTrue(named, ended.text)
        self.assertEqual(Path(named[1]).resolve(), (out / "post_mortem").resolve())

        told = self.lockstep("report", "--post-mortem", named[1], expect=0).stdout
        self.assertIn("rank 1 was killed (SIGKILL)", told)
        self.assertRegex(told, r"(?m)^  1 +killed \(SIGKILL\) ")
        self.assertRegex(told, r"(?m)^  0 +(waits for|gave up) .* (launched|failed) +#\d+ of \w+ for ")  # it may see the death itself
        self.assertRegex(told, r"calls around #\d+ of group")
        self.assertRegex(told, r"(?m)^  > +\d+ ")
        self.assertIn(f"timeline: {out / 'post_mortem' / 'timeline.html'}", told)

        text = (out / "post_mortem" / "timeline.html").read_text()
        page = Page(text)
        self.assertEqual(page.open, [])
        self.assertEqual(page.classes["row"], 3)
        self.assertEqual(page.classes["culprit"], 2)  # its row, and its folded record
        self.assertEqual(page.classes["ends"], 1)
        self.assertGreaterEqual(page.classes["c"], 30)
        self.assertNotIn("script", page.tags)
        for outside in ("http:", "https:", "src=", "url(", "@import"):
            self.assertNotIn(outside, text)

        data = json.loads(self.lockstep("report", out, "--json", expect=0).stdout)
        self.assertEqual(data["diagnosis"]["culprits"], [1])
        self.assertEqual([rank["state"] == "killed (SIGKILL)" for rank in data["ranks"]], [False, True, False])
        self.assertIsNotNone(data["ranks"][0]["waiting"])
        self.assertGreater(data["ranks"][1]["last_call"]["seq"], 0)

        elsewhere = self.folder / "page.html"
        self.lockstep("report", out, "--output", elsewhere, expect=0)
        self.assertEqual(Page(elsewhere.read_text()).classes["row"], 3)

    def test_what_is_missing_is_named(self):
        for words, code, message in (
                (["report"], 2, "neither --post-mortem nor the folder of a run was given"),
                (["report", self.folder, "--post-mortem", self.folder], 2, "both --post-mortem and"),
                (["report", self.folder], 3, "expected a folder post_mortem in it, found none"),
                (["report", self.folder / "none"], 3, "expected the folder of a run, found none"),
                (["report", "--post-mortem", self.folder], 3, "expected a post-mortem folder with diagnosis.json")):
            done = self.lockstep(*words, expect=code)
            self.assertIn(message, done.stderr)
        (self.folder / "diagnosis.json").write_text('{"text": "rank 1')
        done = self.lockstep("report", "--post-mortem", self.folder, expect=3)
        self.assertIn("diagnosis.json: line 1 column", done.stderr)

    def test_the_newest_post_mortem_of_a_run_is_told(self):
        for name in ("post_mortem", "post_mortem-2"):
            (self.folder / name).mkdir()
            (self.folder / name / "diagnosis.json").write_text(json.dumps({"text": f"\x1b[31mfrom {name}"}))
        told = self.lockstep("report", self.folder, expect=0).stdout
        self.assertIn("?[31mfrom post_mortem-2\n\nno rank left a report", told)
        self.assertTrue((self.folder / "post_mortem-2" / "timeline.html").is_file())


if __name__ == "__main__":
    main()
