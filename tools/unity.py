#!/usr/bin/env python3
"""Writes files that include several .cpp files of a room, for cmake/Rooms.cmake to compile in their place.

Files that are compiled as one read their headers once, but also see each other's unnamed namespaces. So two files come
into one group only if no name that one of them keeps to itself stands anywhere in the other, or is made by a header that
the other alone sees: whatever a name means in a file alone, it means in its group. The group's headers come before all
of them, for the same reason. A file that defines a macro stays alone, and two whose headers define the same type
differently stay apart. First fit in the order of names, so that an edit moves few files.

Usage: unity.py FOLDER ROOM MAX_FILES FILE…   writes FOLDER/ROOM_1.cpp…, where changed; prints what to compile
"""
import functools
import re
import sys
from pathlib import Path

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")
UNNAMED = re.compile(r"^namespace \{\n", re.M)
NAMED = re.compile(r"^(?:struct|class|enum(?: class)?|union|using|namespace|concept)\s+(?:\w+::)*(\w+)")
TEST = re.compile(r"^(?:TEST(?:_[FP])?|INSTANTIATE_TEST_SUITE_P)\(\s*(\w+),\s*(\w+)", re.M)  # each makes a class of both words
FUNCTION = re.compile(r"^[^=({]*?\b(\w+)\(|\boperator\b")
TYPE = re.compile(r"^(?:struct|class|enum(?: class)?|union) (\w+)(?: final)?(?: : [^{]*)? \{", re.M)
VARIABLE = re.compile(r"\b([A-Za-z_]\w*)(?:\[[^\]]*\])*\s*(?:[=;,{]|$)")


def unnamed_bodies(code):
    for opened in UNNAMED.finditer(code):
        depth, end = 1, opened.end()
        while depth:
            brace = re.compile(r"[{}]").search(code, end)
            depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
        yield code[opened.end():end - 1]


def declarations(body):
    """The declarations of a namespace, each as one line: formatting is checked, so they begin where a line begins."""
    gathered = ""
    for line in body.splitlines():
        if line[:1] in ("", " ", "}", "#", ")"):
            gathered += line
            continue
        yield gathered
        gathered = line
    yield gathered


def without_types(declared):
    """A declaration of variables, left with their names: std::array<size_t, 2> kOne = {…}, kTwo = 3; -> kOne =, kTwo =;"""
    declared = re.sub(r"\{[^}]*\}", "{", declared)
    while (shorter := re.sub(r"<[^<>]*>", "", declared)) != declared:
        declared = shorter
    return re.sub(r"=[^,;]*|\b\w+::[\w:]*", "=", declared)


def names_of(body):
    """The names that the declarations of a namespace make."""
    names = set()
    for declared in declarations(TEST.sub(r"struct \1_\2_Test", body)):
        declared = re.sub(r"^template <[^{(]*?> ?(?=\w)|\b(?:static|inline|constexpr|\[\[\w+\]\]) ", "", declared)
        if named := NAMED.match(declared):
            names.add(named[1])
            if declared.startswith("enum"):
                names.update(WORD.findall(declared.split("{")[-1]))
        elif (function := FUNCTION.match(declared)) and function[1]:
            names.add(function[1])
        else:
            names.update(VARIABLE.findall(without_types(declared)))
    return names - {"const", "template", *re.findall(r"^namespace (\w+) = ", body, re.M)}  # an alias may be said twice


@functools.cache
def code_of(file):
    """The text without comments and literals."""
    return re.sub(r"[ \t]+$", "", NOT_CODE.sub("", file.read_text()), flags=re.M)


@functools.cache
def included(file):
    """The lockstep headers that a file includes itself; one that is not there is for the compiler to name."""
    source = str(file)[:str(file).rindex("/src/lockstep/") + 5]
    headers = (Path(source + header) for header in re.findall(r'^#include "(lockstep/.*)"', file.read_text(), re.M))
    return [header for header in headers if header.is_file()]


@functools.cache
def made_by(header):
    """The names that a header makes, and of these the types that it defines."""
    code = code_of(header)
    return names_of(code), set(TYPE.findall(code))


class Source:
    def __init__(self, path):
        self.path = path
        code = code_of(path)
        bodies = [*unnamed_bodies(code), *re.findall(r"^static [^\n]*\n", code, re.M)]
        self.own = set().union(*(names_of(body) for body in bodies))
        self.words = set(WORD.findall(code))
        self.makes_macros = bool(re.search(r"^\s*#\s*define\b", code, re.M))
        self.headers = set()
        todo = list(included(path))
        while todo:
            if (header := todo.pop()) not in self.headers:
                self.headers.add(header)
                todo += included(header)

    def hides(self, other):
        """Whether a name that this file keeps to itself could be meant by the other, or by a header that only it sees."""
        return bool(self.own & other.words) or any(self.own & made_by(header)[0] for header in other.headers - self.headers)

    def goes_with(self, other):
        if self.makes_macros or other.makes_macros or self.hides(other) or other.hides(self):
            return False
        mine, theirs = ([made_by(header)[1] for header in ours] for ours in
                        (self.headers - other.headers, other.headers - self.headers))
        return not set().union(*mine) & set().union(*theirs)


def groups_of(paths, max_files):
    groups = []
    for source in map(Source, paths):
        fits = (group for group in groups if len(group) < max_files and all(source.goes_with(other) for other in group))
        if group := next(fits, None):
            group.append(source)
        else:
            groups.append([source])
    return [[source.path for source in group] for group in groups]


def unity_text(files):
    paths = [*sorted({header for file in files for header in included(file)}), *files]
    return "".join(f'#include "{str(path)[str(path).rindex("/src/lockstep/") + 5:]}"\n' for path in paths)


def main():
    folder, room, max_files, *files = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(groups_of([Path(file) for file in files], int(max_files)), 1):
        if len(group) == 1:
            print(group[0])
            continue
        target, text = Path(folder, f"{room}_{number}.cpp"), unity_text(group)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
        print(target)


if __name__ == "__main__":
    main()
