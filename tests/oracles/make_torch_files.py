#!/usr/bin/env python3
"""Write tests/fixtures/torch_files: files of torch.save that hold every kind of tensor a model's file may, a few KB each.

  make_torch_files.py [--out tests/fixtures/torch_files]

src/lockstep/model/torch_file_test.cpp says what stands in them; tests/hf_torch_files_test.py makes others anew.
"""
import argparse
from collections import OrderedDict
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent.parent


def all_kinds():
    """Values 0, 1, 2, … everywhere, so that a test can say them."""
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return OrderedDict([
        ("linear.weight", weight),
        ("linear.bias", torch.arange(2, dtype=torch.float32)),
        ("norm.num_batches_tracked", torch.tensor(7)),
        ("half", torch.arange(4).to(torch.float16)),
        ("brain", torch.arange(4).to(torch.bfloat16)),
        ("double", torch.arange(3).to(torch.float64)),
        ("bytes", torch.arange(3).to(torch.uint8)),
        ("bool", torch.arange(2).to(torch.bool)),
        ("tied", weight),
        ("part", weight.flatten()[4:]),
        ("transposed", weight.t()),
        ("columns", weight[:, 1:]),
        ("expanded", torch.arange(3, dtype=torch.float32).expand(2, 3)),
        ("none", torch.empty(0, 4)),
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "fixtures" / "torch_files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    state = all_kinds()
    state._metadata = OrderedDict([("", {"version": 1}), ("norm", {"version": 2})])  # as Module.state_dict() has it
    for protocol in (2, 4, 5):
        torch.save(state, out / f"protocol{protocol}.bin", pickle_protocol=protocol)

    parameters = dict(all_kinds())
    parameters["linear.weight"] = parameters["tied"] = torch.nn.Parameter(parameters["linear.weight"])
    parameters["linear.bias"] = torch.nn.Parameter(parameters["linear.bias"])
    parameters["linear.bias"].tag = {"no_decay": True}  # _rebuild_parameter_with_state
    parameters["half"].tag = "attribute"  # _rebuild_from_type_v2
    torch.save(parameters, out / "parameters.bin")
    torch.save({"small": torch.zeros(2, dtype=torch.float8_e4m3fn)}, out / "float8.bin")
    torch.save({"w": torch.arange(3.0)}, out / "legacy.bin", _use_new_zipfile_serialization=False)
    for file in sorted(out.iterdir()):
        print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
