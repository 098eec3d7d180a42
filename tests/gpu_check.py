#!/usr/bin/env python3
"""The program on the GPUs of this machine, check by check beside the CPU; writes bench/results/gpu.json, ends with 1 when one fails.

gpu_check.py [--quick] [--only NAME,…] [--families NAME,…] [--out FILE] [--keep DIR]

In order of risk, so that what is broken shows first: doctor, one step, losses of every family in float32 and bfloat16, grouped heads in
float32, memory against the plan, limits, a batch of auto, offload, several GPUs, answers and vectors, the same bits twice, compute-sanitizer, speed.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "bench")]
import families_test  # noqa: E402
import gpu_speed  # noqa: E402
import story  # noqa: E402
from small_job import losses, make_rows, sft_words  # noqa: E402

DECODERS = ("qwen2", "llama", "mistral", "qwen3")  # of text alone
FAMILIES = ("qwen2", "llama", "mistral", "qwen3", "llava", "qwen2_5_vl", "internvl", "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm", "qwen2_5_omni")
BARS = {"float32": 1e-4, "bfloat16": 2e-2}  # of a loss, over 20 steps
FAKE = int(os.environ.get("LOCKSTEP_FAKE_GPUS", 0))
COMMIT = ROOT / "COMMIT"  # in a bundle, where there is no git


class Failed(Exception):
    """A check found something else than it expected."""


class Checks:
    def __init__(self, folder, quick):
        self.folder, self.quick, self.families_here = folder, quick, FAMILIES
        self.rows, self.texts = make_rows(folder), make_rows(folder, images=False, name="texts.jsonl")
        self.steps = 4 if quick else 20

    # ---- What the checks are made of.

    def run(self, *words, expect=0, env=None, timeout=300):
        visible = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}  # which stories hide
        done = story.run(*words, timeout=timeout, env={**visible, **(env or {})})
        if expect is not None and done.returncode != expect:
            raise Failed(f"expected exit code {expect}, found {done.text[-3000:]}")
        return done

    def model(self, family, dtype="float32", size="tiny"):
        place = self.folder / f"{family}-{size}-{dtype}"
        if not place.exists():
            self.run("init", "--family", family, "--size", size, "--torch_dtype", dtype, "--output_dir", place)
            if windows := families_test.TEXTS.get(family):  # shorter than the rows: they look back so far and no further
                config = place / "config.json"
                config.write_text(json.dumps({**json.loads(config.read_text()), **windows}))
        return place

    def rows_of(self, family):
        """Pictures, films and sound, as far as the family knows them; LLaVA's rows are those of the other checks."""
        if family in DECODERS:
            return self.texts
        return self.rows if family == "llava" else families_test.make_rows(self.folder, family)

    def train(self, name, family="llava", device="cuda", steps=None, expect=0, rows=None, model=None, **flags):
        out = self.folder / name
        vision = {"freeze_vit": None, "freeze_aligner": None} if family in DECODERS else {}
        words = sft_words(model or self.model(family), rows or self.rows_of(family), out, steps=steps or self.steps, device=device,
                          **{"nproc": 1, "save_strategy": "no", **vision, **flags})
        return out, self.run(*words, expect=expect)

    def gpus(self):
        if FAKE:
            return FAKE
        return len(gpu_words("name").splitlines())

    def same_losses(self, name, bar, cpu_flags, **flags):
        on_cpu, _ = self.train(name + " cpu", device="cpu", **cpu_flags)
        on_gpu, _ = self.train(name + " gpu", **{**cpu_flags, **flags})
        expected, found = losses(on_cpu), losses(on_gpu)
        apart = max(abs(found[step] - loss) for step, loss in expected.items())
        if list(found) != list(expected) or not apart <= bar:
            raise Failed(f"losses differ by {apart:.2g}, allowed {bar:g}: {found} and the CPU's {expected}")
        return f"{len(expected)} steps, losses at most {apart:.1e} apart"

    # ---- The checks, in their order.

    def doctor(self):
        done = self.run("doctor", "--model", self.model("llava"), "--device", "cuda", expect=None)
        failures = [line for line in done.stdout.splitlines() if line.startswith("failure") and not (FAKE and " GPU " in line)]
        if failures:
            raise Failed("\n".join(failures))
        return done.stdout.strip().splitlines()[-1]

    def one_step(self):
        self.train("one step", steps=1, debug_sync="true")
        return "a step with --debug_sync"

    def families(self):
        """All of them, whatever becomes of one."""
        found, failed = {}, []
        for dtype, bar in BARS.items():
            for family in self.families_here:
                name = f"{family} {dtype}"
                try:
                    found[name] = self.same_losses(name, bar, {"family": family, "torch_dtype": dtype})
                except Failed as error:
                    failed.append(f"{name}: {error}")
        if failed:
            raise Failed("\n".join(failed))
        return found

    def long_rows(self):
        """Of a length that cuDNN's attention takes where it is quicker (tensor/fn_attention.cpp), and of one that it does not."""
        vocab = json.loads((self.model("qwen2") / "config.json").read_text())["vocab_size"]
        found = {}
        for tokens in (1024, 1000):
            rows = gpu_speed.write_rows(self.folder / f"{tokens}.jsonl", vocab, tokens, 8)
            found[tokens] = self.same_losses(f"{tokens} tokens", BARS["bfloat16"],
                                             {"family": "qwen2", "torch_dtype": "bfloat16", "rows": rows, "steps": 4, "max_length": 2048})
        return found

    def grouped_heads(self):
        """In float32 no kernel takes heads of keys that serve a group of queries' heads (tensor/fn_attention.cpp); what LibTorch does then
        has all scores in memory, which the peak would show."""
        tokens = 1024 if FAKE or self.quick else 4096
        place = self.folder / "qwen2 grouped"
        shutil.copytree(self.model("qwen2"), place)
        config = json.loads((place / "config.json").read_text())
        config.update(max_position_embeddings=max(tokens, config["max_position_embeddings"]))
        if config["num_key_value_heads"] == config["num_attention_heads"]:
            raise Failed("the model's heads are no groups")
        (place / "config.json").write_text(json.dumps(config))
        rows = gpu_speed.write_rows(self.folder / "grouped.jsonl", config["vocab_size"], tokens, 2)
        out, _ = self.train("grouped", family="qwen2", steps=2, rows=rows, model=place, torch_dtype="float32", max_length=tokens,
                            per_device_train_batch_size=1)
        return f"{tokens} tokens: {peak_beside_plan(out)}"

    def memory(self):
        return peak_beside_plan(self.train("memory", steps=4)[0])

    def limits(self):
        _, done = self.train("limit", steps=2, memory_limit="100MiB", expect=None)
        if done.returncode != 5:
            raise Failed(f"100 MiB, less than the runtime takes, was accepted: {done.text[-1500:]}")
        return "a limit that is too small ends with exit code 5"

    def batch(self):
        _, done = self.train("batch", steps=2, per_device_train_batch_size="auto")
        return [line for line in done.stderr.splitlines() if line.startswith("batch size")][-1]

    def offload(self):
        return self.same_losses("offload", BARS["float32"], {"torch_dtype": "float32"}, offload="params,optimizer")

    def several(self):
        if self.gpus() < 2:
            return "left out: one GPU"
        flags = {"torch_dtype": "float32", "nproc": 2}
        return {"zero3": self.same_losses("two ranks", BARS["float32"], flags),
                "zero2": self.same_losses("two ranks zero2", BARS["float32"], {**flags, "deepspeed": "zero2"}),
                "map": self.same_losses("a map", BARS["float32"], {"torch_dtype": "float32"}, device_map="auto")}

    def answers(self):
        def of(device):
            out = self.folder / f"answers {device}.jsonl"
            self.run("infer", "--model", self.model("llava"), "--val_dataset", self.rows, "--result_path", out, "--max_new_tokens", 16,
                     "--torch_dtype", "float32", "--device", device, "--nproc", 1)
            return out.read_text()

        if of("cuda") != of("cpu"):
            raise Failed("answers differ from the CPU's in float32")
        return "24 answers are the CPU's"

    def vectors(self):
        def of(device):
            out = self.folder / f"vectors {device}"
            self.run("embed", "--model", self.model("llava"), "--dataset", self.rows, "--output", out, "--torch_dtype", "float32",
                     "--device", device, "--nproc", 1)
            return [json.loads(line)["embedding"] for line in (out / "embeddings.jsonl").read_text().splitlines()]

        apart = max(abs(x - y) for a, b in zip(of("cuda"), of("cpu")) for x, y in zip(a, b))
        if not apart <= 1e-4:
            raise Failed(f"vectors are {apart:.2g} apart")
        return f"vectors at most {apart:.1e} apart"

    def deterministic(self):
        weights = [(self.train(f"same bits {i}", torch_dtype="bfloat16", deterministic="true", save_strategy="steps", save_steps=self.steps)[0]
                    / f"checkpoint-{self.steps}" / "model.safetensors").read_bytes() for i in range(2)]
        if weights[0] != weights[1]:
            raise Failed("two runs with --deterministic true end in different weights")
        return "the same weights twice"

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if FAKE or self.quick or not Path(tool).exists():
            return "left out: no compute-sanitizer"
        words = sft_words(self.model("llava"), self.rows, self.folder / "sanitized", steps=1, device="cuda", guard="off", nproc=1)
        for kind in ("memcheck", "racecheck"):
            shutil.rmtree(self.folder / "sanitized", ignore_errors=True)
            done = subprocess.run([tool, "--tool", kind, "--report-api-errors", "no",  # LibTorch's allocator asks the driver for what it may refuse
                                   "--error-exitcode", "99", "--target-processes", "all", str(story.BINARY),
                                   *map(str, words)], capture_output=True, text=True, timeout=280)
            if done.returncode != 0:
                raise Failed(f"{kind}: {(done.stdout + done.stderr)[-3000:]}")
        return "memcheck and racecheck: no error in a step"

    def speed(self):
        """Of Qwen2.5-7B's shapes on rows of 4096 tokens; on fake GPUs and with --quick a tiny model's, to try the way."""
        dry = FAKE or self.quick
        tiny = self.model("qwen2")
        config = json.loads(((tiny if dry else ROOT / "configs/Qwen2.5-7B") / "config.json").read_text())
        tokens, steps = (64, 4) if dry else (4096, 8)

        def train(model, rows, steps, **flags):
            out = Path(tempfile.mkdtemp(prefix="speed ", dir=self.folder))
            done = self.run(*sft_words(model, rows, out, steps=steps, device="cuda", nproc=1, freeze_vit=None, freeze_aligner=None,
                                       save_strategy="no", dataset_shuffle="false", max_length=tokens, **flags), expect=None, timeout=400)
            if done.returncode not in (0, 5):
                raise Failed(done.text[-3000:])
            return out if done.returncode == 0 else None

        python = os.environ.get("LOCKSTEP_HF_PYTHON") or sys.executable
        return gpu_speed.measure(train, self.folder, tiny, config, tokens, steps, self.name_of_gpu(), "cpu" if FAKE else "cuda", python)

    def name_of_gpu(self):
        return "fake" if FAKE else gpu_words("name").splitlines()[0]


def peak_beside_plan(out):
    record = json.loads((out / "memory.json").read_text())
    planned, found = record["predicted"]["devices"][0]["peak"], record["ranks"][0]["since_start"]["devices"][0]["peak"]
    apart = found / planned - 1
    if abs(apart) > 0.03:
        raise Failed(f"planned {planned}, measured {found}: {apart:+.1%}")
    return f"peak {apart:+.2%} of the plan"


def gpu_words(fields):
    """What the driver says of each GPU, a line each; nothing where there is no driver."""
    if not shutil.which("nvidia-smi"):
        return ""
    return subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()


def commit():
    if COMMIT.exists():
        return COMMIT.read_text().strip()
    import provenance
    return provenance.commit()


ORDER = ("doctor", "one_step", "families", "long_rows", "grouped_heads", "memory", "limits", "batch", "offload", "several", "answers", "vectors", "deterministic",
         "sanitizer", "speed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 steps instead of 20, no compute-sanitizer")
    parser.add_argument("--only", default="", help="some of: " + ", ".join(ORDER))
    parser.add_argument("--families", default="", help="the families whose losses are compared; default: all")
    parser.add_argument("--out", type=Path, help="default: bench/results/gpu.json, for a whole run on real GPUs")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs write")
    args = parser.parse_args()
    if not FAKE and not gpu_words("name"):
        sys.exit("gpu_check: nvidia-smi tells of no GPU on this machine")
    names = args.only.split(",") if args.only else ORDER
    folder = args.keep or Path(tempfile.mkdtemp(prefix="lockstep_gpu_"))
    folder.mkdir(parents=True, exist_ok=True)
    checks, results, failed = Checks(folder, args.quick), {}, 0
    if args.families:
        checks.families_here = args.families.split(",")
    for name in names:
        begun = time.monotonic()
        try:
            found, word = getattr(checks, name)(), "ok"
        except (Failed, AssertionError, OSError, KeyError, subprocess.TimeoutExpired) as error:
            found, word, failed = str(error), "FAILED", failed + 1
        seconds = time.monotonic() - begun
        results[name] = {"result": word, "found": found, "seconds": round(seconds, 1)}
        print(f"{word:7} {name:14} {seconds:6.1f} s  {found if isinstance(found, str) else json.dumps(found, indent=2)}", flush=True)
    whole = not args.only and not args.quick and not FAKE
    out = args.out or (ROOT / "bench/results/gpu.json" if whole else None)
    if out:
        gpus = gpu_words("name,driver_version,memory.total").splitlines() if not FAKE else ["fake"]
        head = {"commit": commit(), "measured": time.strftime("%Y-%m-%d"), "gpus": gpus}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**head, "checks": results}, indent=1) + "\n")
        print(f"written {out}")
        document = ROOT / "docs/gpu.md"
        if whole and document.exists() and results["speed"]["result"] == "ok":
            gpu_speed.write_into(document, results["speed"]["found"], f"Commit {head['commit']}, {head['measured']}, {gpus[0]}:")
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(names)} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
