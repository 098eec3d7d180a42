#!/usr/bin/env python3
"""What is read from a diagnosis' words, and what becomes of the words that a job was started with."""

import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from fixes import Fix, Started, apply_fix, read_fix  # noqa: E402

GOES_ON = "; the same command with --resume_from_checkpoint auto goes on from the last checkpoint"


class Fixes(unittest.TestCase):
    def test_a_person_is_asked_where_nothing_is_named(self):
        for text in (
            "",
            "its own lines say why",
            "every rank must make the same calls in the same order: look for a branch on the rank around step.cpp:9",
            "a higher ZeRO stage, a smaller batch or --max_length need less; `lockstep plan --json true` shows how much",
            "name a folder that can be written",
            "give WORLD_SIZE (and --nproc, --nnodes) the same value on every node, and restart all ranks",
        ):
            self.assertIsNone(read_fix(text), text)

    def test_the_first_way_is_taken_with_what_lets_the_job_go_on(self):
        text = "if it may take so long, allow it: --patience data=60; otherwise look at --dataloader_num_workers 2" + GOES_ON
        self.assertEqual(
            read_fix(text), Fix(flags={"--patience": ["data=60"], "--resume_from_checkpoint": ["auto"]})
        )
        self.assertEqual(read_fix("--deepspeed zero3, or --max_length 9 needs less"), Fix(flags={"--deepspeed": ["zero3"]}))

    def test_a_fix_for_one_rank_changes_that_rank(self):
        text = "start rank 1 with --train llm projector WORLD_SIZE=3 and without --json, as ranks 0, 2; or give all the same"
        started = [Started(rank, ("sft", "--train", "llm", "--json", "--x", rank), {"RANK": rank}) for rank in range(3)]
        done = apply_fix(read_fix(text), started)
        self.assertEqual((done[0], done[2]), (started[0], started[2]))
        self.assertEqual(done[1].words, ("sft", "--x", "1", "--train", "llm", "projector"))
        self.assertEqual(done[1].env, {"RANK": 1, "WORLD_SIZE": "3"})

    def test_a_missing_rank_is_started_with_the_variables_named(self):
        text = "start rank 1 too, by the same command with RANK=1 MASTER_PORT=4; or set WORLD_SIZE (--nproc) to 2"
        started = [Started(rank, ("sft",), {"RANK": rank, "A": 1}) for rank in (0, 2)]
        done = apply_fix(read_fix(text), started)
        self.assertEqual([one.rank for one in done], [0, 1, 2])
        self.assertEqual(done[1].env, {"RANK": "1", "MASTER_PORT": "4", "A": 1})

    def test_quoted_values_are_one_word(self):
        fix = read_fix("start rank 1 with --model '/a b/c', as rank 0")
        self.assertEqual(fix.flags, {"--model": ["/a b/c"]})

    def test_the_same_command_once_more_changes_nothing(self):
        started = [Started(None, ("embed",))]
        self.assertEqual(apply_fix(read_fix("give the same command again: rows are kept"), started), started)


if __name__ == "__main__":
    unittest.main()
