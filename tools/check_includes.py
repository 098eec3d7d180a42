#!/usr/bin/env python3
"""Room arrows, banned and costly headers, what belongs to a process alone, types defined twice, file and
function sizes.

Which room may see which is read from src/lockstep/CMakeLists.txt (DEPENDS, followed through), so that it is written
once. A test may also see what its room's TEST_LINK names.

Usage: check_includes.py [ROOT]   prints one line a finding, exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# header pattern, where it is allowed (path pattern under src/lockstep), why it is banned elsewhere
BANNED = [
    (r"torch/(torch|all)\.h", None, "costs 20 s a file; use ATen/core/Tensor.h and ATen/ops/<op>.h"),
    (r"torch/(nn|optim)(/|\.h)", None, "the model and the optimizer are our own"),
    (r"ATen/(ATen|Functions|TensorOperators)\.h", None, "costs 6 s a file; use ATen/core/Tensor.h and ATen/ops/<op>.h"),
    (r"torch/csrc/autograd/", r"exec/|tensor/|testing/|\w+/\w+_test\.cpp", "autograd belongs to exec/ and tensor/"),
    (r"torch/csrc/distributed/|gloo/|c10d/", r"comm/|cuda/|testing/", "the network has one door: comm/communicator.h"),
    (r"c10/cuda/|ATen/cuda/|cuda_runtime|cuda\.h|nccl\.h", r"cuda/", "CUDA lives in the library that is loaded at run time"),
]
# What belongs to the border of a process: a pattern in code (comments apart), where it is allowed, what to do elsewhere.
BORDER = [
    (r"std::c(out|err|in)\b|<iostream>|<CLI/", r"cli/|main\.cpp|session/rank_main\.cpp|testing/|\w+/\w+_test\.cpp",
     "printing and flags are for cli/: return a value, or emit an event"),
    (r"\bgetenv\(|\benviron\b", r"base/(env|process|program)\.cpp|\w+/(test_\w+\.h|\w+_test\.cpp)",
     "the environment is read once, in main: take an Env or a value"),
    (r"(?<![\w.])_?exit\(", r"main\.cpp|base/(interrupted|process)\.cpp|guard/member\.cpp|cli/stop_signals\.cpp|\w+/\w+_test\.cpp|cuda/",
     "a process ends in main: throw an Error"),
    (r"\b[Jj]son::(?:sax_)?parse\(|\bfrom_(?:cbor|bson|msgpack|ubjson)\(|YAML::Load",
     r"base/json\.cpp|text/tokenizer_file\.cpp|base/yaml_file\.cpp|\w+/test_\w+\.h|\w+/\w+_test\.cpp",
     "what strangers wrote is read within limits: parse_json, parse_json_or_discard (base/json.h), read_yaml"),
]
# Headers that are read once a build (cmake/PreparedHeaders.cmake) are there whether a file includes them or not: who uses one says so.
PREPARED = [(re.compile(r"\bfmt::(format|print|join)\("), "#include <fmt/", "<fmt/format.h>")]
# Header files stay cheap to include; one whose members need a complete Tensor includes lockstep/tensor/tensor.h and
# nothing else of torch. Exempt by name: the headers that exist for that, and for .cpp files. Exempt by kind: headers
# that tests share (test_*.h), which may also see what a test may see.
TORCH_IN_HEADER = re.compile(r"(ATen|torch|c10)/|lockstep/tensor/fn_common\.h")
HEADERS_WITH_TORCH = {"tensor/fwd.h", "tensor/tensor.h", "tensor/fn_common.h", "comm/rendezvous_store.h"}


def room_table(cmake_text):
    """{room: (rooms that it may include, rooms that its tests may include besides)} from the lockstep_room calls."""
    depends, tests = {}, {}
    for call in re.findall(r"lockstep_room\(([^)]*)\)", cmake_text):
        name, *words = call.split()
        part = None
        depends[name], tests[name] = [], []
        for word in words:
            if word in ("DEPENDS", "LINK", "TEST_LINK", "NO_TEST_MAIN"):
                part = word
            elif part == "DEPENDS":
                depends[name].append(word)
            elif part == "TEST_LINK" and word.startswith("lockstep_"):
                tests[name].append(word.removeprefix("lockstep_"))

    def closure(names):
        seen = set()
        todo = list(names)
        while todo:
            room = todo.pop()
            if room not in seen:
                seen.add(room)
                todo += depends.get(room, [])
        return seen

    return {room: (closure([room]), closure([room, *tests[room]])) for room in depends}


def check_file(path, text, rooms):
    """Findings (line, message) of one file; path is relative to src/lockstep."""
    room = path.split("/")[0]
    is_test = path.endswith("_test.cpp") or "/test_" in path
    is_header = path.endswith(".h") and not is_test
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield len(lines), f"{len(lines)} lines, at most {MAX_FILE_LINES}: name the second concept and give it its own file"
    if path.endswith(".h") and "#pragma once" not in text:
        yield 1, "a header without #pragma once"
    for number, line in enumerate(lines, 1):
        for pattern, allowed, why in BORDER:
            if re.search(pattern, line.split("//")[0]) and not re.match(allowed, path):
                yield number, f"{line.strip()[:60]}: {why}"
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        header = match[2]
        if match[1] == '"' and not header.startswith("lockstep/"):
            yield number, f'"{header}": write the full path from src/, as in "lockstep/{room}/{Path(header).name}"'
        if header.startswith("lockstep/"):
            other = header.split("/")[1]
            if room in rooms and other not in rooms[room][1 if is_test else 0]:
                yield number, f"{room} may not see {other} ({header}); allowed: {' '.join(sorted(rooms[room][is_test]))}"
        for pattern, allowed, why in BANNED:
            if re.match(pattern, header) and not (allowed and re.match(allowed, path)):
                yield number, f"<{header}> is not allowed here: {why}"
        if is_header and TORCH_IN_HEADER.match(header) and path not in HEADERS_WITH_TORCH:
            yield number, f"<{header}> in a header: include lockstep/tensor/fwd.h, and the full type in the .cpp"
        if header == "nlohmann/json.hpp" and is_header:
            yield number, "<nlohmann/json.hpp> in a header: include lockstep/base/json.h (or nlohmann/json_fwd.hpp)"
    code = [line.split("//")[0] for line in lines]
    for use, include, header in PREPARED:
        uses = [number for number, line in enumerate(code, 1) if use.search(line)]
        if uses and include not in text:
            yield uses[0], f"{use.search(code[uses[0] - 1])[0]}…) without {header}"
    if not is_test:
        yield from long_functions(lines)


TYPE = re.compile(r"^(?:struct|class|enum(?: class)?|union) (\w+)(?: final)?(?: : [^{;]*)? \{", re.M)


def defined_twice(headers):
    """Types of one name in two headers of one namespace: whoever links both has undefined behaviour, and no word of it.
    `headers`: (path, text) of each; findings (path, line, message)."""
    seen = {}
    for path, text in headers:
        namespace = re.search(r"^namespace ([\w:]+) \{", text, re.M)
        for match in TYPE.finditer(text):
            name = f"{namespace[1] if namespace else ''}::{match[1]}"
            first = seen.setdefault(name, path)
            if first != path:
                yield path, text.count("\n", 0, match.start()) + 1, f"{name} is defined in {first} too: one of them needs another name"


def long_functions(lines):
    """Functions are found by layout (clang-format is obeyed): a line that ends in "{" and its closing brace at the
    same indentation; namespaces, types and tables of values do not count."""
    skip = re.compile(r"\s*(namespace|class|struct|enum|union|extern|if|for|while|else|switch|do|try|\}|case|return|#)\b|.*=\s*(\{|\S+\{)$|.*\[.*\]\s*$")
    for start, line in enumerate(lines):
        if not line.endswith("{") or skip.match(line) or "(" not in "".join(lines[max(0, start - 3):start + 1]):
            continue
        indent = len(line) - len(line.lstrip())
        if indent > 2:
            continue
        for end in range(start + 1, len(lines)):
            if re.match(rf" {{{indent}}}\}}", lines[end]):
                if end - start - 1 > MAX_FUNCTION_LINES:
                    yield start + 1, f"a function of {end - start - 1} lines, at most {MAX_FUNCTION_LINES}: give its steps names"
                break


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    source = root / "src" / "lockstep"
    rooms = room_table((source / "CMakeLists.txt").read_text())
    count = files = 0
    for path in sorted([*source.rglob("*.h"), *source.rglob("*.cpp")]):
        files += 1
        for line, message in check_file(str(path.relative_to(source)), path.read_text(), rooms):
            print(f"{path.relative_to(root)}:{line}: {message}")
            count += 1
    headers = [(path, path.read_text()) for path in sorted(source.rglob("*.h")) if not path.name.startswith("test_")]
    for path, line, message in defined_twice((str(path.relative_to(source)), text) for path, text in headers):
        print(f"{(source / path).relative_to(root)}:{line}: {message}")
        count += 1
    print(f"{files} files, {len(rooms)} rooms, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
