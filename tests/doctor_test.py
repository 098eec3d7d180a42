"""`lockstep doctor`: every check has its line, a broken part has its exit code and cure, and none stops the others."""
import json
import resource
import shutil
import subprocess

from small_job import make_model, make_rows
from story import BINARY, ROOT, Story, environment, finish, free_port, main, start

MACHINE = ["shared memory", "disk", "open files", "clock", "memory", "cores", "huge pages", "films", "memory copy"]
CHECKPOINT = ["config", "files", "tensors", "tokenizer", "processor", "chat template"]


class Doctor(Story):
    def examine(self, *words, expect=0, **options):
        """The report of --json, with its checks by name too."""
        done = self.lockstep("doctor", "--json", *words, expect=expect, **options)
        report = json.loads(done.stdout)
        self.assertEqual(report["exit_code"], expect, done.text)
        for check in report["checks"]:
            self.assertIn(check["level"], ("ok", "warning", "failure"), check)
            self.assertEqual(check["cure"] is None, check["level"] == "ok", check)
        self.assertEqual(report["ok"] + report["warnings"] + report["failures"], len(report["checks"]))
        return report, {check["name"]: check for check in report["checks"]}

    def test_a_machine_alone(self):
        report, checks = self.examine()
        self.assertEqual(list(checks), ["lockstep", "LibTorch", "GPU", "CPU", *MACHINE, "clocks", "bandwidth"])
        self.assertEqual(checks["LibTorch"]["level"], "ok", checks["LibTorch"])
        self.assertIn("--nproc 2", checks["bandwidth"]["text"])
        self.assertEqual(report["links"], [])

    def test_a_job_with_all_checks(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        report, checks = self.examine("--model", model, "--dataset", rows, "--output_dir", self.folder / "out", "--nproc", 2)
        self.assertEqual({check["check"] for check in report["checks"]},
                         {"versions", "checkpoint", "plan", "machine", "data", "links"})
        self.assertEqual(list(checks), ["lockstep", "LibTorch", "GPU", "CPU", *CHECKPOINT, "plan", *MACHINE, str(rows),
                                        "clocks", "bandwidth"])
        self.assertEqual(report["failures"], 0, report)
        self.assertIn("24 rows; of 24 looked at 24 can be used; 16 pictures", checks[str(rows)]["text"])
        self.assertIn("a checkpoint with its optimizer needs", checks["disk"]["text"])
        self.assertFalse((self.folder / "out").exists())  # looking leaves nothing behind
        (link,) = report["links"]
        self.assertEqual(link["ranks"], [0, 1])
        self.assertGreater(link["bytes_per_second"], 0)
        self.assertGreater(link["latency_seconds"], 0)

    def test_three_ranks_have_three_links_over_each_transport(self):
        for transport, name in (("auto", "shared memory"), ("gloo", "gloo")):
            with self.subTest(transport):
                report, checks = self.examine("--nproc", 3, "--transport", transport)
                self.assertEqual([link["ranks"] for link in report["links"]], [[0, 1], [0, 2], [1, 2]])
                self.assertIn(f"3 pairs of 3 ranks over {name}", checks["bandwidth"]["text"])
                self.assertEqual(len(checks["bandwidth"]["table"]), 4)
                clocks = checks["clocks"]
                self.assertTrue(clocks["level"] == "ok" or "ahead of" in clocks["text"], clocks)  # a rank that stood still for a second

    def test_people_get_a_line_a_check_and_the_cure_below(self):
        done = self.lockstep("doctor", "--model", self.folder / "nowhere", expect=4)
        lines = done.stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("failure"))
        self.assertIn("found no such folder", lines[at])
        self.assertTrue(lines[at + 1].strip().startswith("-> "), done.text)
        self.assertRegex(lines[-1], r"^\d+ checks: \d+ ok, \d+ warnings?, 1 failure$")

    def test_a_broken_checkpoint_stops_no_other_check(self):
        model, rows = make_model(self.folder), make_rows(self.folder)
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        report, checks = self.examine("--model", model, "--dataset", rows, "--nproc", 2, expect=4)
        self.assertEqual(checks["files"]["exit_code"], 4)
        self.assertIn("truncated", checks["files"]["text"])
        self.assertEqual(checks["tokenizer"]["level"], "ok")
        self.assertEqual(checks[str(rows)]["level"], "ok")
        self.assertEqual(len(report["links"]), 1)

    def test_a_config_of_another_size_is_told_with_both_shapes(self):
        model = make_model(self.folder, family="qwen2")
        config = json.loads((model / "config.json").read_text())
        config["intermediate_size"] *= 2
        (model / "config.json").write_text(json.dumps(config))
        _, checks = self.examine("--model", model, expect=4)
        self.assertEqual(checks["tensors"]["level"], "failure")
        self.assertIn("intermediate_size", checks["tensors"]["text"])

    def test_a_missing_image_is_a_warning_and_with_strict_the_end(self):
        rows = make_rows(self.folder)
        (self.folder / "3.png").unlink()
        with open(rows, "a") as file:
            file.write('{"query": \n')
        _, checks = self.examine("--dataset", rows)
        self.assertEqual(checks[str(rows)]["level"], "warning")
        self.assertIn("3.png", checks[str(rows)]["text"])
        self.assertIn("1 broken", checks[str(rows)]["text"])
        _, checks = self.examine("--dataset", rows, self.folder / "none.jsonl", "--strict", "true", expect=3)
        self.assertEqual(checks[str(rows)]["exit_code"], 3)
        self.assertEqual(checks[str(self.folder / "none.jsonl")]["level"], "failure")

    def test_few_open_files(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))

        done = subprocess.run([str(BINARY), "doctor", "--json"], env=environment(), preexec_fn=limit, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        self.assertEqual(checks["open files"]["level"], "failure")
        self.assertIn("nofile", checks["open files"]["cure"])

    def test_a_gpu_that_is_not_there_keeps_nothing_else_from_being_looked_at(self):
        report, checks = self.examine("--device", "cuda", "--nproc", 2, expect=2)
        self.assertEqual(checks["GPU"]["level"], "failure")
        self.assertEqual(report["failures"], 1, report)
        self.assertEqual(len(report["links"]), 1)

    def test_memory_that_is_too_small_for_the_plan(self):
        # Qwen2.5-72B's published config with weights of its names and shapes that are holes in the file.
        model = self.folder / "large"
        model.mkdir()
        shutil.copy(ROOT / "configs" / "Qwen2.5-72B" / "config.json", model)
        self.write_hollow_weights(model)
        _, checks = self.examine("--model", model, "--deepspeed", "zero0", expect=4)  # there is no tokenizer
        self.assertEqual(checks["tensors"]["level"], "ok", checks["tensors"])
        self.assertEqual(checks["memory"]["level"], "failure", checks["memory"])
        self.assertEqual(checks["memory"]["exit_code"], 5)
        self.assertEqual(checks["disk"]["level"], "failure", checks["disk"])

    def test_torchruns_ranks_are_used(self):
        port = free_port()
        ranks = [start("doctor", "--json", env={"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                                                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in range(2)]
        done = [finish(process) for process in ranks]
        self.assertEqual([d.returncode for d in done], [0, 0], done[0].text + done[1].text)
        self.assertEqual(done[1].stdout, "")
        self.assertEqual(len(json.loads(done[0].stdout)["links"]), 1)

    def test_a_rank_that_does_not_come_is_told_after_all_else(self):
        rows = make_rows(self.folder, images=False)
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}
        for guard in ("default", "off"):
            with self.subTest(guard):
                words = ("--dataset", rows, "--patience", 2, "--guard", guard)
                done = self.lockstep("doctor", "--json", *words, env={**alone, "MASTER_PORT": free_port()}, expect=6)
                checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
                self.assertEqual(checks["ranks"]["exit_code"], 6)
                self.assertIn("rank 1", checks["ranks"]["text"])
                self.assertEqual(checks[str(rows)]["level"], "ok")

    def test_nodes_are_each_looked_at(self):
        """Two nodes of one rank, as a launcher on each would start them; the second lacks the data."""
        port = free_port()
        rows = make_rows(self.folder, images=False)
        common = {"WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": port}
        ranks = [start("doctor", "--json", "--dataset", data, env={**common, "RANK": rank, "GROUP_RANK": rank})
                 for rank, data in enumerate((rows, self.folder / "not_there.jsonl"))]
        done = [finish(process) for process in ranks]
        self.assertEqual([d.returncode for d in done], [3, 3], done[0].text + done[1].text)
        report = json.loads(done[0].stdout)
        (missing,) = [check for check in report["checks"] if check["level"] == "failure"]
        self.assertEqual(missing["where"], "the node of rank 1")
        self.assertIn("not_there.jsonl", missing["text"])
        self.assertEqual(len(report["links"]), 1)

    def test_help_and_slips(self):
        self.assertIn("Examples:", self.lockstep("doctor", "--help", expect=0).stdout)
        self.assertIn("did you mean --nproc", self.lockstep("doctor", "--nprok", 2, expect=2).stderr)

    def write_hollow_weights(self, model):
        """A safetensors file of Qwen2's tensors, in bf16, whose data were never written."""
        config = json.loads((model / "config.json").read_text())
        d, f, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
        kv = d // config["num_attention_heads"] * config["num_key_value_heads"]
        shapes = {"model.embed_tokens.weight": [config["vocab_size"], d], "lm_head.weight": [config["vocab_size"], d],
                  "model.norm.weight": [d]}
        for i in range(layers):
            layer = {"self_attn.q_proj.weight": [d, d], "self_attn.q_proj.bias": [d], "self_attn.k_proj.weight": [kv, d],
                     "self_attn.k_proj.bias": [kv], "self_attn.v_proj.weight": [kv, d], "self_attn.v_proj.bias": [kv],
                     "self_attn.o_proj.weight": [d, d], "mlp.gate_proj.weight": [f, d], "mlp.up_proj.weight": [f, d],
                     "mlp.down_proj.weight": [d, f], "input_layernorm.weight": [d], "post_attention_layernorm.weight": [d]}
            shapes.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
        header, end = {}, 0
        for name, shape in shapes.items():
            count = 2
            for size in shape:
                count *= size
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + count]}
            end += count
        text = json.dumps(header).encode()
        with open(model / "model.safetensors", "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + end)


if __name__ == "__main__":
    main()
