"""PyTorch's own weights (pytorch_model.bin): the same vectors, answers and checkpoints as from safetensors, bit for bit; files that
are out to run something, or are damaged, end in one sentence.

LOCKSTEP_TORCH_FILES_SEED picks the seed of the changes (default 1), which is printed, LOCKSTEP_TORCH_FILES_FLIPS their number (12: a
process each; model/torch_file_test.cpp makes thousands).
"""
import importlib.util
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile
from collections import OrderedDict

from small_job import make_model, make_rows, sft_words
from story import BINARY, Story, environment, main

SEED = int(os.environ.get("LOCKSTEP_TORCH_FILES_SEED", "1"))


def setUpModule():
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{sys.executable} has no {', '.join(missing)}: run tools/setup.sh tests, then configure anew, or name another "
                           "Python in LOCKSTEP_HF_PYTHON")


def transposed(tensors):
    """The same tensors, each as the transposed view of one that is laid the other way."""
    return {name: t.t().contiguous().t() if t.dim() == 2 else t for name, t in tensors.items()}


def of_one_storage(tensors):
    """All as views of one storage, each behind a gap."""
    import torch
    some = next(iter(tensors.values()))
    flat = torch.zeros(sum(t.numel() + 3 for t in tensors.values()), dtype=some.dtype)
    views, at = {}, 0
    for name, t in tensors.items():
        at += 3
        views[name] = flat[at:at + t.numel()].view(t.shape).copy_(t)
        at += t.numel()
    return views


def parameters(tensors):
    """As Parameters, some with attributes of Python's, and the rest as tensors with them."""
    import torch
    out = {}
    for i, (name, t) in enumerate(tensors.items()):
        out[name] = torch.nn.Parameter(t.clone(), requires_grad=i % 2 == 0) if i % 3 else t.clone()
        if i % 2:
            out[name].tag = {"group": "no_decay"}
    return out


def with_metadata(tensors):
    state = OrderedDict(tensors)
    state._metadata = OrderedDict([("", {"version": 1})])
    return state


class Evil:
    """Unpickled, it would make the file `path`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


class TorchFiles(Story):
    @classmethod
    def setUpClass(cls):
        import tempfile
        from pathlib import Path
        cls.shared = Path(tempfile.mkdtemp(prefix="lockstep_torch_files_"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.model = make_model(cls.shared, "qwen2")
        cls.rows = make_rows(cls.shared, count=4, images=False)
        print(f"seed {SEED}", flush=True)

    def setUp(self):
        super().setUp()
        from safetensors.torch import load_file
        self.tensors = load_file(self.model / "model.safetensors")

    def folder_of(self, name, tensors=None):
        """The model's folder without its weights, or with `tensors` as safetensors."""
        from safetensors.torch import save_file
        folder = self.folder / name
        shutil.copytree(self.model, folder, ignore=shutil.ignore_patterns("model.safetensors", "lockstep_manifest.json"))
        if tensors is not None:
            save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder

    def vectors(self, folder):
        """What `embed` makes of the rows; the same weights give the same bytes."""
        out = folder.parent / f"{folder.name}_vectors"
        self.lockstep("embed", "--model", folder, "--dataset", self.rows, "--output", out, "--format", "safetensors", expect=0)
        return (out / "embeddings.safetensors").read_bytes()

    def test_every_way_of_writing_gives_the_vectors_of_safetensors(self):
        import torch
        expected = self.vectors(self.folder_of("safetensors", self.tensors))
        for name, tensors, options in (
                ("dict", self.tensors, {}), ("ordered", with_metadata(self.tensors), {"pickle_protocol": 4}),
                ("protocol 5", self.tensors, {"pickle_protocol": 5}), ("parameters", parameters(self.tensors), {}),
                ("one storage", of_one_storage(self.tensors), {}), ("transposed", transposed(self.tensors), {})):
            with self.subTest(name):
                folder = self.folder_of(name.replace(" ", "_"))
                torch.save(tensors, folder / "pytorch_model.bin", **options)
                self.assertEqual(self.vectors(folder), expected)
        with self.subTest("shards"):
            folder, names = self.folder_of("shards"), sorted(self.tensors)
            files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
            for i, file in enumerate(files):
                torch.save({name: self.tensors[name] for name in names[i::2]}, folder / file)
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps(
                {"metadata": {}, "weight_map": {name: files[i % 2] for i, name in enumerate(names)}}))
            self.assertEqual(self.vectors(folder), expected)
            os.unlink(folder / files[1])
            self.assertIn("1 of 2 files are not there", self.lockstep("inspect", folder, expect=4).text)

    def test_every_dtype_gives_the_vectors_of_safetensors(self):
        import torch
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            tensors = {name: t.to(dtype) for name, t in self.tensors.items()}
            name = str(dtype).removeprefix("torch.")
            ours = self.folder_of(name)
            torch.save(tensors, ours / "pytorch_model.bin")
            with self.subTest(name):
                self.assertEqual(self.vectors(ours), self.vectors(self.folder_of(name + "_safetensors", tensors)))

    def test_a_tied_head_that_shares_its_storage(self):
        import torch
        model = self.folder_of("tied")
        config = json.loads((model / "config.json").read_text())
        config["tie_word_embeddings"] = True
        (model / "config.json").write_text(json.dumps(config))
        tensors = {name: t for name, t in self.tensors.items() if name != "lm_head.weight"}
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        torch.save(tensors, model / "pytorch_model.bin")
        self.assertIn(f"{len(tensors)} tensors", self.lockstep("inspect", model, expect=0).text)
        answer = ["infer", "--model", model, "--prompt", "Say 1.", "--max_new_tokens", 4]
        ours = self.lockstep(*answer, expect=0).stdout
        os.unlink(model / "pytorch_model.bin")
        from safetensors.torch import save_file
        save_file({name: t for name, t in tensors.items() if name != "lm_head.weight"}, model / "model.safetensors", {"format": "pt"})
        self.assertEqual(ours, self.lockstep(*answer, expect=0).stdout)

    def test_what_is_trained_from_it_is_saved_as_safetensors_alone(self):
        import torch
        from safetensors.torch import load_file
        folder = self.folder_of("torch")
        torch.save(self.tensors, folder / "pytorch_model.bin")
        (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"stale": "pytorch_model.bin"}}')
        saved = []
        for model in (self.folder_of("safetensors", self.tensors), folder):
            out = self.folder / f"out_{model.name}"
            self.lockstep(*sft_words(model, self.rows, out, steps=2, save_steps=2), "--save_only_model", "true", expect=0)
            saved.append(out / "checkpoint-2")
        first, second = (load_file(one / "model.safetensors") for one in saved)
        self.assertEqual(first.keys(), second.keys())
        for name, tensor in first.items():
            self.assertTrue(torch.equal(tensor, second[name]), name)
        self.assertTrue(any(not torch.equal(first[name], t) for name, t in self.tensors.items()), "nothing was trained")
        self.assertEqual(sorted(f.name for f in saved[0].iterdir()), sorted(f.name for f in saved[1].iterdir()))
        self.assertEqual([f.name for f in saved[1].iterdir() if "pytorch_model" in f.name], [])
        self.lockstep("inspect", saved[1], expect=0)

    def test_what_looks_at_a_folder_reads_it(self):
        import torch
        folder = self.folder_of("torch")
        torch.save(self.tensors, folder / "pytorch_model.bin")
        self.assertIn("pytorch_model.bin", self.lockstep("inspect", folder, expect=0).text)
        self.assertIn(f"1 file with {len(self.tensors)} tensors", self.lockstep("doctor", "--model", folder, "--json", "true").text)
        self.lockstep("plan", "--model", folder, expect=0)

    def refused(self, folder, *parts):
        done = self.lockstep("inspect", folder)
        self.assertEqual(done.returncode, 4, done.text[:3000])  # a signal is negative, a bug 70
        self.assertLess(len(done.stdout + done.stderr), 4096)
        for part in parts:
            self.assertIn(part, done.text)

    def test_nothing_of_a_pickle_is_run(self):
        import torch
        ran, folder = self.folder / "ran", self.folder_of("evil")
        for name, evil, protocol in (("posix.system", Evil(os.system, f"touch {ran}"), 2), ("posix.system", Evil(os.system, f"touch {ran}"), 4),
                                     ("io.open", Evil(open, str(ran), "w"), 5), ("__builtin__.eval", Evil(eval, f"open('{ran}', 'w')"), 2)):
            for place in ({**self.tensors, "w": evil},) if protocol == 4 else ({"w": evil}, evil):
                torch.save(place, folder / "pytorch_model.bin", pickle_protocol=protocol)
                with self.subTest(name=name, protocol=protocol):
                    self.refused(folder, f"asks Python for {name}", "nothing of it was run", "pytorch_model.bin")
        done = self.lockstep("infer", "--model", folder, "--prompt", "x", expect=4)
        self.assertIn("nothing of it was run", done.text)
        self.assertFalse(ran.exists())
        torch.load(folder / "pytorch_model.bin", weights_only=False)
        self.assertTrue(ran.exists(), "the point of this test")

    def test_other_files_under_this_name(self):
        import torch
        folder = self.folder_of("other")
        path = folder / "pytorch_model.bin"
        torch.save(self.tensors, path, _use_new_zipfile_serialization=False)
        done = self.lockstep("inspect", folder, expect=4)
        self.assertIn("found the one before torch 1.6", done.text)
        command = done.stdout[done.stdout.index("python3 -c ") + len('python3 -c "'):].split('"')[0]
        subprocess.run([sys.executable, "-c", command], check=True)
        self.lockstep("inspect", folder, expect=0)
        torch.save({"epoch": 3, "state_dict": self.tensors}, path)
        self.refused(folder, "tensor epoch: expected a tensor, found an int")
        torch.save({"state_dict": self.tensors, "epoch": 3}, path)
        self.refused(folder, "state_dict: expected a tensor, found a dict; the file's 2 keys: state_dict, epoch", "['state_dict'], f)")
        torch.save(torch.nn.Linear(2, 2), path)
        self.refused(folder, "asks Python for torch.nn.modules.linear.Linear")
        torch.save({"w": torch.zeros(2, dtype=torch.complex64)}, path)
        self.refused(folder, "tensor w: dtype torch.ComplexFloatStorage")
        packed = io.BytesIO()
        torch.save(self.tensors, packed)
        with zipfile.ZipFile(packed) as stored, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as small:
            for name in stored.namelist():
                small.writestr(name, stored.read(name))
        self.refused(folder, "expected bytes as they are, found compressed ones")
        with zipfile.ZipFile(packed) as stored, zipfile.ZipFile(path, "w") as again:
            for name in stored.namelist():
                again.writestr(name, stored.read(name))
        self.lockstep("inspect", folder, expect=0)

    def test_damaged_files_end_in_one_sentence(self):
        import torch
        folder = self.folder_of("damaged")
        path = folder / "pytorch_model.bin"
        torch.save(self.tensors, path)
        good = path.read_bytes()
        begin = good.index(b"\x80\x02")
        size = len(pickle.dumps(list(self.tensors)))  # no more than what the names take
        cuts = 10
        changes = [good[:len(good) * i // cuts] for i in range(cuts)]
        source = random.Random(SEED)
        tail = good.rindex(b"PK\x05\x06")
        for i in range(int(os.environ.get("LOCKSTEP_TORCH_FILES_FLIPS", "12"))):
            changed = bytearray(good)
            for _ in range(source.randrange(1, 4)):
                at = source.randrange(begin, begin + size) if i % 2 else source.randrange(tail - 2000, len(good))
                changed[at] = source.randrange(256)
            changes.append(bytes(changed))
        environ = environment()
        for i, changed in enumerate(changes):
            path.write_bytes(changed)
            done = subprocess.run([BINARY, "inspect", folder], capture_output=True, check=False, env=environ, timeout=60)
            shown = (done.stdout + done.stderr)[:3000]
            self.assertIn(done.returncode, (4,) if i < cuts else (0, 4), f"seed {SEED}, change {i}: {shown}")
            self.assertLess(len(done.stdout + done.stderr), 6000, f"seed {SEED}, change {i}")


if __name__ == "__main__":
    main()
