"""Tools, calls and results in three spellings against transformers: the same text by the checkpoint's own template, and what is trained in it."""
import copy
import importlib.util
import json
import random
import re
import shutil
import sys

from small_job import make_model, png, sft_words
from story import FIXTURES, Story, main

QWEN2 = FIXTURES / "oracle" / "seed1" / "qwen2" / "checkpoint"
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
ARGUMENTS = {"place": "Göteborg", "days": [1, 2]}


def setUpModule():
    if importlib.util.find_spec("transformers") is None:
        raise RuntimeError(f"{sys.executable} has no transformers: run tools/setup.sh tests, then configure anew, or name another Python in "
                           "LOCKSTEP_HF_PYTHON")


def reference():
    """What transformers takes."""
    return [{"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}]},
            {"role": "tool", "content": "rain"}, {"role": "tool", "content": "sun"}, {"role": "assistant", "content": "mixed"}]


def spellings():
    openai = copy.deepcopy(reference())
    openai[1]["content"] = None
    openai[1]["tool_calls"][0]["function"]["arguments"] = json.dumps(ARGUMENTS)
    call = json.dumps({"name": "weather", "arguments": ARGUMENTS})
    return {
        "openai": {"messages": openai, "tools": TOOLS},
        "anthropic": {"messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": ARGUMENTS}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "rain"},
                                         {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "sun"}]}]},
            {"role": "assistant", "content": [{"type": "text", "text": "mixed"}]}],
            "tools": [{"name": "weather", "description": "of a place", "input_schema": TOOLS[0]["function"]["parameters"]}]},
        "ms-swift": {"messages": [
            {"role": "user", "content": "q"}, {"role": "tool_call", "content": call}, {"role": "tool_response", "content": "rain"},
            {"role": "tool_response", "content": "sun"}, {"role": "assistant", "content": "mixed"}], "tools": json.dumps(TOOLS)},
        "LLaMA-Factory": {"conversations": [
            {"from": "human", "value": "q"}, {"from": "function_call", "value": call}, {"from": "observation", "value": "rain"},
            {"from": "observation", "value": "sun"}, {"from": "gpt", "value": "mixed"}], "tools": json.dumps([TOOLS[0]["function"]])},
    }


class Tools(Story):
    def shown(self, model, row, name):
        rows = self.folder / f"{name}.jsonl"
        rows.write_text((json.dumps(row) + "\n") * 2)
        done = self.lockstep(*sft_words(model, rows, self.folder / name, steps=1, save_strategy="no", freeze_vit=None, freeze_aligner=None),
                             expect=0)
        text = done.text[done.text.index("first row, "):]
        return text[text.index(": ") + 2:]

    def qwen2(self):
        model = self.folder / "model"
        shutil.copytree(QWEN2, model)
        return model

    def expect_row(self, shown, text):
        """Both calls of the assistant are trained, nothing else is."""
        self.assertTrue(shown.replace("[[", "", 9).replace("]]", "", 9).startswith(text.rstrip("\n")), f"{shown}\n---\n{text}")
        trained = [part.split("]]")[0] for part in shown.split("[[")[1:] if "]]" in part]
        self.assertEqual(trained[:2], [text.split("<|im_start|>assistant\n")[1].split("<|im_end|>")[0] + "<|im_end|>", "mixed<|im_end|>"])

    def test_all_spellings_are_rendered_as_transformers_renders_them(self):
        from transformers import AutoTokenizer
        model = self.qwen2()
        # The arguments have a list in brackets of their own: two of them beside one another would be taken for marks.
        text = AutoTokenizer.from_pretrained(model).apply_chat_template(reference(), tools=TOOLS, tokenize=False)
        for name, row in spellings().items():
            with self.subTest(name):
                self.expect_row(self.shown(model, row, name), text)

    def test_a_template_of_the_same_kind_without_tools_writes_them_as_qwen_does(self):
        # The published template of Qwen2.5-VL knows no tools; ms-swift writes them all the same.
        from transformers import AutoTokenizer
        words = AutoTokenizer.from_pretrained(QWEN2)
        messages = [{"role": "system", "content": "You are a helpful assistant."}, *reference()]
        text = words.apply_chat_template(messages, tools=TOOLS, tokenize=False)
        self.expect_row(self.shown(make_model(self.folder, "qwen2_5_vl"), spellings()["openai"], "vl"), text)

    def test_a_template_of_another_kind_is_refused(self):
        model = make_model(self.folder, "llava")
        rows = self.folder / "rows.jsonl"
        rows.write_text(json.dumps(spellings()["openai"]) + "\n")
        done = self.lockstep(*sft_words(model, rows, self.folder / "run", steps=1), "--strict", "true")
        self.assertEqual(done.returncode, 3, done.text)
        self.assertIn("the checkpoint's chat template writes none", done.text)


class Boxes(Story):
    def test_boxes_stand_in_the_picture_that_transformers_makes(self):
        # ms-swift#3659 #4898 #5008, Qwen3-VL#721: what is trained must be where the thing is in the picture that the model sees.
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
        model = make_model(self.folder, "qwen2_5_vl")
        draw = random.Random(3)
        for number, (width, height, limits) in enumerate([(100, 60, {}), (333, 41, {}), (64, 500, {"MAX_PIXELS": 20000}),
                                                          (30, 30, {"MIN_PIXELS": 30000})]):
            (self.folder / "a.png").write_bytes(png(width, height, (9, 9, 9)))
            boxes = [sorted(draw.sample(range(width), 2)) + sorted(draw.sample(range(height), 2)) for _ in range(4)]
            boxes = [[x1, y1, x2, y2] for x1, x2, y1, y2 in boxes]
            row = {"query": "<image>" + "<bbox>;" * 4, "response": "a", "images": ["a.png"], "objects": {"bbox": boxes}}
            config = json.loads((model / "preprocessor_config.json").read_text())
            size = config.get("size", {})
            high, wide = smart_resize(height, width, factor=config["patch_size"] * config["merge_size"],
                                      min_pixels=limits.get("MIN_PIXELS", config.get("min_pixels", size.get("shortest_edge"))),
                                      max_pixels=limits.get("MAX_PIXELS", config.get("max_pixels", size.get("longest_edge"))))
            expected = [[round(v / (width, height)[i % 2] * (wide, high)[i % 2]) for i, v in enumerate(box)] for box in boxes]
            rows = self.folder / "rows.jsonl"
            rows.write_text(json.dumps(row) + "\n")
            done = self.lockstep(*sft_words(model, rows, self.folder / f"run{number}", steps=1, save_strategy="no"), env=limits, expect=0)
            found = re.findall(r"<\|box_start\|>\((\d+),(\d+)\),\((\d+),(\d+)\)<\|box_end\|>", done.text)[:4]
            self.assertEqual([[int(v) for v in box] for box in found], expected, done.text)


if __name__ == "__main__":
    main()
