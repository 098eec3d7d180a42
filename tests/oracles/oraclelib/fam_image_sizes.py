"""Images of random sizes and contents through the processors of qwen2_5_vl and llava (CLIP), with both backends: noise,
photograph-like gradients and text-like edges, in the form of image_preprocess."""
import random

import numpy as np
import torch
from PIL import Image

from . import fam_images, media
from .common import Recorder, fresh_dir, load_reference, np_rng

FAMILIES = ("qwen2_5_vl", "llava")
KINDS = ("photograph", "noise", "edges")


def content(seed, name, kind, width, height):
    rng = np_rng(seed, "sizes", name)
    if kind == "photograph":
        return media.picture(seed, "sizes/" + name, width, height)
    if kind == "noise":
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    glyphs = rng.random((height // 3 + 1, width // 2 + 1)) < 0.4     # strokes two pixels wide and three high, black on white
    return np.repeat(np.where(np.kron(glyphs, np.ones((3, 2)))[:height, :width, None] > 0, 0, 255).astype(np.uint8), 3, axis=2)


def write_images(seed, count, folder):
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    edge = lambda: int(2 ** rng.uniform(2.5, 9))
    for i in range(count):
        width, height, kind = edge(), edge(), KINDS[i % 3]
        name = f"{i:04d}_{kind}_{width}x{height}.png"
        Image.fromarray(content(seed, name, kind, width, height)).save(folder / name)


def compute(folder):
    tensors = {}
    procs = {key: proc for key, proc in fam_images.processors().items() if key[0] in FAMILIES}
    for i, path in enumerate(sorted((folder / "images").iterdir())):
        image = Image.open(path)
        for (family, backend), proc in procs.items():
            res = proc(images=[image], return_tensors="pt")
            x = res["pixel_values"].float()
            if family == "llava" and backend == "torchvision" and i % 10 == 0:
                tensors[f"{path.name}/llava/pixel_values"] = (x, "float pixel values (torchvision backend)")
            x = x.view(-1, 3, 2, 14, 14)[:, :, 0] if family == "qwen2_5_vl" else x
            u = fam_images.to_u8(x, fam_images.CLIP_MEAN, fam_images.CLIP_STD)[0]
            tensors[f"{path.name}/{family}/{backend}"] = (u, "levels before normalisation, in processor order")
    return tensors


def make(ctx, family):
    folder = fresh_dir(ctx.out / family)
    write_images(ctx.seed, ctx.images, folder / "images")
    rec = Recorder(family, ctx.seed)
    for name, (tensor, meaning) in compute(folder).items():
        rec.add(name, tensor, meaning)
    rec.meta["settings"] = {"qwen2_5_vl": {"min_pixels": 3136, "max_pixels": fam_images.QWEN_MAX}, "llava_size": fam_images.CLIP_SIZE}
    rec.save(folder)


def verify(folder):
    stored, _ = load_reference(folder)
    return [(n, 0.0 if torch.equal(stored[n], t) else 1.0, torch.equal(stored[n], t)) for n, (t, _) in compute(folder).items()]
