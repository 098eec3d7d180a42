"""What is kept for the day when a GPU is there runs as far as it can without one: the checks on GPUs that are none, speed on a
tiny model, and the build of the CUDA part where the GPU wheels are installed."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import gpu_check
import gpu_speed
import story
from story import ROOT, Story, main, sampled

FAKE = story.BINARY.parent / "lockstep_on_fake_gpus"


class GpuTools(Story):
    def check(self, *words, **env):
        out = self.folder / "gpu.json"
        done = subprocess.run([sys.executable, "-B", ROOT / "tests" / "gpu_check.py", "--quick", "--out", out, *words],
                              env={**os.environ, "LOCKSTEP_BIN": str(FAKE), "LOCKSTEP_FAKE_GPUS": "2", **env}, capture_output=True,
                              text=True, timeout=600)
        return done, json.loads(out.read_text())["checks"] if out.exists() else {}

    def test_the_checks_pass_on_fake_gpus(self):
        names = "doctor,one_step,long_rows,grouped_heads,memory,limits,batch,offload,several,answers,vectors,deterministic,sanitizer"
        done, checks = self.check("--only", names)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({name: one["result"] for name, one in checks.items()}, dict.fromkeys(names.split(","), "ok"))

    def test_every_family_trains_as_on_the_cpu(self):
        done, _ = self.check("--only", "families", "--families", ",".join(sampled(gpu_check.FAMILIES)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_check_that_fails_is_told(self):
        done, checks = self.check("--only", "memory,one_step", LOCKSTEP_FAKE_GPU_FAULT="0 breaks 100")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(checks["one_step"]["result"], "FAILED")
        self.assertIn("illegal memory access", checks["one_step"]["found"])

    def test_speed_is_measured_on_a_tiny_model(self):
        done, checks = self.check("--only", "speed")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        full = checks["speed"]["found"]["full"]
        self.assertGreater(full["tokens_per_second"], 0)
        self.assertLess(abs(full["peak_over_plan"]), 0.03)
        self.assertNotIn("mfu", full, "what a fake GPU can do at most is not known")
        for name in ("full", "LoRA"):
            kept = checks["speed"]["found"][f"{name}, blocks kept as memory allows"]
            self.assertGreater(kept["peak_bytes"], checks["speed"]["found"][name]["peak_bytes"])
            self.assertLess(abs(kept["peak_over_plan"]), 0.01)
        document = self.folder / "gpu.md"
        document.write_text("before\n<!-- speed -->\nold\n<!-- end of speed -->\nbehind\n")
        gpu_speed.write_into(document, checks["speed"]["found"], "Commit 0:")
        text = document.read_text()
        self.assertRegex(text, r"^before\n<!-- speed -->\nCommit 0:\n\n\| what .*\n\| --- .*\n\| full \| \d+ \| - \|")
        self.assertTrue(text.endswith("<!-- end of speed -->\nbehind\n"))
        self.assertNotIn("old", text)

    def test_flops_are_those_of_a_known_model(self):
        config = json.loads((ROOT / "configs" / "Qwen2.5-7B" / "config.json").read_text())
        numel = sum(gpu_speed.numel(shape) for shape in gpu_speed.shapes(config).values())
        self.assertEqual(numel, 7_615_616_512)  # parameters, as its makers count them
        of_weights = 6 * (numel - 152064 * 3584 - 28 * (2 * 3584 + 3584 + 2 * 512) - 3584)  # without the table, norms and biases
        self.assertEqual(gpu_speed.flops_of_token(config, 4096), of_weights + 6 * 28 * 3584 * 4096)
        self.assertEqual(gpu_speed.most_flops("NVIDIA H200"), 989.4e12)
        self.assertAlmostEqual(gpu_speed.figures([9, 9, 1.0], 4096, config, "NVIDIA H200")["mfu"],
                               4096 * gpu_speed.flops_of_token(config, 4096) / 989.4e12, places=4)

    def test_the_cuda_part_is_built_with_the_wheels_alone(self):
        venv = Path(os.environ.get("LOCKSTEP_GPU_VENV") or ROOT / ".venv")
        done = subprocess.run([ROOT / "tools" / "gpu_build_check.sh", venv], capture_output=True, text=True, timeout=600)
        if done.returncode == 3:
            raise unittest.SkipTest("the GPU wheels are not installed")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("all symbols bound", done.stdout)
        self.assertIn("kernels for sm_90: ", done.stdout)


if __name__ == "__main__":
    main()
