#!/usr/bin/env python3
"""Write tests/fixtures/text/expressions.jsonl and templates.jsonl: what Jinja2 makes of the templates in jinja/, with the
settings of transformers 5.23 (utils/chat_template_utils.py, _compile_jinja_template).

  make_jinja.py [--check]     needs jinja2 3.1 alone; --check compares with the files instead of writing them

jinja/expressions.txt has a template a line, rendered with no messages; jinja/*.jinja are chat templates, rendered for two
conversations, with and without tools.
"""
import argparse
import json
import sys
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures" / "text"
TOOLS = [{"type": "function", "function": {"name": "f", "description": 'D"é', "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}]
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": "ü"}}}
LONG = [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi 你好"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello", "tool_calls": [CALL]},
        {"role": "tool", "content": "7", "tool_call_id": "abcdefghi"}, {"role": "assistant", "content": "Seven"},
        {"role": "user", "content": "Thanks"}]
SHORT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Hello "}, {"role": "user", "content": "Bye"}]


class Generation(jinja2.ext.Extension):
    """transformers marks with it what the assistant says: it renders as its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = raise_exception
    return env


def rendered(source, **values):
    """What a row of a fixture says of the template: its text, or that it fails."""
    try:
        return {"text": environment().from_string(source).render(**values)}
    except (jinja2.exceptions.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return {"fails": True}


def expressions():
    for source in (HERE / "jinja" / "expressions.txt").read_text(encoding="utf-8").rstrip("\n").split("\n"):
        yield {"template": source, **rendered(source, messages=[], add_generation_prompt=False)}


def templates():
    for path in sorted((HERE / "jinja").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for messages in (LONG, SHORT):
            for tools in (None, TOOLS):
                values = {"messages": messages, "tools": tools}
                yield {"name": path.name, "template": source, **values,
                       **rendered(source, **values, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true")
    check = ap.parse_args().check
    different = 0
    for name, rows in (("expressions.jsonl", expressions()), ("templates.jsonl", templates())):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        if not check:
            (FIXTURES / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            continue
        stored = (FIXTURES / name).read_text(encoding="utf-8").rstrip("\n").split("\n")
        apart = [i + 1 for i, (a, b) in enumerate(zip(lines, stored)) if a != b]
        if apart or len(lines) != len(stored):
            print(f"{name}: expected {len(lines)} rows as jinja2 {jinja2.__version__} makes them, found {len(stored)}; "
                  f"different in lines {apart}")
            different += 1
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
