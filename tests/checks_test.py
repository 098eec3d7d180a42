"""The checks of tools/ find what they are for: each gets a small tree with one thing wrong."""
import subprocess
import sys
import unittest
from pathlib import Path

from story import ROOT, Story, main

ROOMS = "lockstep_room(base)\nlockstep_room(tensor DEPENDS base LINK torch_cpu)\nlockstep_room(comm DEPENDS tensor TEST_LINK lockstep_testing)\n" \
        "lockstep_room(testing DEPENDS comm)\n"


class Includes(Story):
    def findings(self, path, text):
        source = self.folder / "src" / "lockstep"
        (source / path).parent.mkdir(parents=True)
        (source / "CMakeLists.txt").write_text(ROOMS)
        (source / path).write_text(text)
        done = subprocess.run([sys.executable, ROOT / "tools" / "check_includes.py", self.folder], capture_output=True,
                              text=True, check=False)
        lines = done.stdout.splitlines()[:-1]
        self.assertEqual(done.returncode, 1 if lines else 0, done.stdout + done.stderr)
        return lines

    def test_a_room_may_look_left_through_other_rooms(self):
        self.assertEqual(self.findings("comm/a.cpp", '#include "lockstep/base/json.h"\n'), [])

    def test_a_room_may_not_look_right(self):
        found = self.findings("base/a.cpp", '#include "lockstep/comm/world.h"\n')
        self.assertEqual(found, ["src/lockstep/base/a.cpp:1: base may not see comm (lockstep/comm/world.h); allowed: base"])

    def test_a_test_may_see_what_it_links(self):
        self.assertEqual(self.findings("comm/a_test.cpp", '#include "lockstep/testing/ranks.h"\n'), [])

    def test_but_the_room_itself_may_not(self):
        self.assertEqual(len(self.findings("comm/a.cpp", '#include "lockstep/testing/ranks.h"\n')), 1)

    def test_costly_headers(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "torch/nn/module.h", "torch/csrc/autograd/variable.h",
                       "torch/csrc/distributed/c10d/Backend.hpp", "ATen/cuda/CUDAContext.h"):
            with self.subTest(header):
                self.folder = self.folder / "next"
                self.assertEqual(len(self.findings("base/a.cpp", f"#include <{header}>\n")), 1)

    def test_a_header_that_is_read_once_a_build_is_included_by_who_uses_it(self):
        use = 'std::string a() { return fmt::format("{}", 1); }\n'
        self.assertEqual(self.findings("base/a.cpp", use), ["src/lockstep/base/a.cpp:1: fmt::format(…) without <fmt/format.h>"])
        self.folder = self.folder / "next"
        self.assertEqual(self.findings("base/a.cpp", "#include <fmt/format.h>\n" + use), [])

    def test_headers_do_not_include_torch(self):
        self.assertEqual(len(self.findings("tensor/a.h", "#pragma once\n#include <ATen/core/Tensor.h>\n")), 1)

    def test_what_belongs_to_the_border_of_a_process(self):
        for line in ("#include <iostream>", 'void f() { std::cerr << 1; }', 'const char* a = std::getenv("A");', "void f() { ::_exit(1); }",
                     "#include <CLI/CLI.hpp>"):
            with self.subTest(line):
                self.folder = self.folder / "next"
                self.assertEqual(len(self.findings("base/a.cpp", line + "\n")), 1)
        self.folder = self.folder / "next"
        self.assertEqual(self.findings("base/a.cpp", "// std::cout << table;  exit(1)\nvoid f() { recorder.before_exit(1); }\n"), [])

    def test_a_type_that_two_headers_define(self):
        header = "#pragma once\nnamespace lockstep {\nstruct Span {\n  int a = 0;\n};\n}  // namespace lockstep\n"
        (self.folder / "src" / "lockstep" / "tensor").mkdir(parents=True)
        (self.folder / "src" / "lockstep" / "tensor" / "b.h").write_text(header)
        self.assertEqual(self.findings("base/a.h", header), ["src/lockstep/tensor/b.h:3: lockstep::Span is defined in base/a.h too: "
                                                             "one of them needs another name"])

    def test_a_long_file_and_a_long_function(self):
        self.assertIn("401 lines", self.findings("base/a.cpp", "// x\n" * 401)[0])
        self.folder = self.folder / "next"
        body = "int f(int x) {\n" + "  x += 1;\n" * 61 + "}\n"
        self.assertEqual(self.findings("base/a.cpp", body),
                         ["src/lockstep/base/a.cpp:1: a function of 61 lines, at most 60: give its steps names"])


class Repository(Story):
    def findings(self, path, content):
        subprocess.run(["git", "init", "-q", self.folder], check=True)
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        subprocess.run(["git", "-C", self.folder, "add", "-f", path], check=True)
        done = subprocess.run([sys.executable, ROOT / "tools" / "check_repo.py", self.folder], capture_output=True,
                              text=True, check=False)
        return done.stdout.splitlines()[:-1]

    def test_a_large_file(self):
        self.assertIn("1048577 bytes", self.findings("a.bin", b"\0" * (1 << 20) + b"\0")[0])

    def test_a_path_of_one_machine(self):
        self.assertEqual(len(self.findings("a.md", b"see /" + b"home/me/x\n")), 1)
        self.assertEqual(len(self.findings("b.md", b"fine: usr/home and https://a.b/home/x\n")), 1)

    def test_a_tab_in_source_but_not_in_a_makefile(self):
        self.assertEqual(len(self.findings("a.cpp", b"int\tx;\n")), 1)
        (self.folder / "a.cpp").write_text("int x;\n")
        self.assertEqual(self.findings("Makefile", b"a:\n\ttrue\n"), [])


class Dockerfile(Story):
    def findings(self, old="", new=""):
        """What is said when `old` stands in the Dockerfile as `new`; each line without its place."""
        for name in ("README.md", "Makefile", "Dockerfile"):
            (self.folder / name).write_text((ROOT / name).read_text().replace(old, new) if name == "Dockerfile"
                                            else (ROOT / name).read_text())
        done = subprocess.run([sys.executable, ROOT / "tools" / "check_dockerfile.py", self.folder], capture_output=True,
                              text=True, check=False)
        lines = [line.split(": ", 1)[1] for line in done.stdout.splitlines()[:-1]]
        self.assertEqual(done.returncode, 1 if lines else 0, done.stdout + done.stderr)
        return lines

    def test_the_commands_of_the_readme_pass(self):
        self.assertEqual(self.findings(), [])

    def test_other_commands_do_not(self):
        self.assertEqual(self.findings("RUN make build", "RUN make release"),
                         ["RUN make release, README.md says make demo and make test"])
        self.assertEqual(self.findings('"demo"', '"quicktest"'), ["CMD make quicktest, README.md says make demo"])
        self.assertEqual(self.findings('CMD ["make", "demo"]', ""), ["no CMD make demo"])

    def test_another_system_and_other_packages_do_not(self):
        self.assertEqual(self.findings("FROM debian:12", "FROM debian:13"), ["FROM debian:13, README.md says debian:12"])
        self.assertEqual(len(self.findings("git make python3", "git make python3 cmake")), 1)


class ThisTree(unittest.TestCase):
    def test_it_passes_all(self):
        for name in ("check_includes.py", "check_repo.py", "check_dockerfile.py"):
            done = subprocess.run([sys.executable, ROOT / "tools" / name], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
