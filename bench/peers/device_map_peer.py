#!/usr/bin/env python3
"""The device maps that Accelerate infers for a model of which there is only the config.

Usage: device_map_peer.py CONFIG_FOLDER COUNT…        prints {"COUNT": {"module": device}} as one line of JSON

The model stands on the meta device in bfloat16 with its weights tied; memory is balanced as device_map="auto" does it,
over devices that are large enough for anything; modules that must not be split are those that the model names.
"""
import json
import logging
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
logging.disable(logging.WARNING)                     # it says of every device that it is not there
import torch  # noqa: E402
import transformers  # noqa: E402
from accelerate import infer_auto_device_map, init_empty_weights  # noqa: E402
from accelerate.utils import get_balanced_memory  # noqa: E402

ENOUGH = 10**13


def main():
    config = transformers.AutoConfig.from_pretrained(sys.argv[1])
    with init_empty_weights():
        model = getattr(transformers, config.architectures[0])._from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    same = {"no_split_module_classes": list(model._no_split_modules or []), "dtype": torch.bfloat16}
    maps = {}
    for count in map(int, sys.argv[2:]):
        memory = get_balanced_memory(model, max_memory={device: ENOUGH for device in range(count)}, **same)
        maps[count] = infer_auto_device_map(model, max_memory=memory, **same)
    print(json.dumps(maps))


if __name__ == "__main__":
    main()
