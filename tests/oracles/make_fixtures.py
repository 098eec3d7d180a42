#!/usr/bin/env python3
"""Write tests/fixtures/oracle: a seed of ordinary sizes and one of odd sizes, without the tensors that only help to find
a mistake (inner layers of cases whose outer ones are kept), so that the repository stays small.

  make_fixtures.py [--out tests/fixtures/oracle]
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from oraclelib.common import read_json, write_json  # noqa: E402

SETS = {
    "seed1": (["--seed", "1", "--vocab", "320"], ["qwen2", "llava", "train_qwen2", "train_llava", "audio_preprocess"]),
    "odd": (["--seed", "2", "--sizes", "odd", "--vocab", "288"], ["qwen2", "llava", "llama", "qwen2_5_vl", "internvl", "mistral", "qwen3", "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm",
                                                                       "qwen2_5_omni"]),
}
DROPPED = re.compile(r"(single|long|two_images|text_only)/out/(layer_\d+|layer0_.*|vision_.*|inputs_embeds|last_hidden_state)"
                     r"|batch/out/(layer_[1-9]\d*|layer0_.*)|.*/out/grad:(model\.embed_tokens|lm_head)\.weight")
# More that a set can do without, and what it keeps in spite of DROPPED (the gradient of a tied head).
ALSO_DROPPED = {"seed1/llava": r".*patch_embedding\.weight|two_images/out/logits|batch/out/(layer_0|vision_layer_0|vision_embeddings)|original_.*",
                "seed1/qwen2": r"batch/out/layer_0", "odd/llama": r"single/.*", "odd/llava": r"(two_images|original_mixed)/out/logits|batch/out/layer_0",
                "odd/internvl": r"opengvlab_mixed/out/logits|(batch|mixed)/out/(layer_\d+|inputs_embeds|last_hidden_state)|mixed/out/(logits|vision_.*)|single/.*|text_only/.*",
                "odd/mistral": r"batch/out/(logits|layer_0|inputs_embeds)|long/out/logits",
                "odd/qwen3": r"batch/out/(logits|layer_0|inputs_embeds)",
                "odd/minicpm_v_2_6": r"mixed/out/(?!pooled).*|text_only/.*|navit/.*|image_batch/out/(logits|inputs_embeds|layer_0|vision_embeddings"
                                     r"|last_hidden_state|grad:(resampler\.proj|resampler\.attn\.in_proj_weight|llm\.model\.layers.*))",
                "odd/omnilmm": r"mixed/out/(?!pooled).*|text_only/.*|batch/out/(logits|inputs_embeds|layer_0|vision_embeddings|last_hidden_state"
                               r"|grad:(model\.resampler\.(proj|kv_proj|attn\.in_proj_weight).*|model\.layers.*|.*qkv\.weight))",
                "odd/minicpm_o_2_6": r"text_only/.*|(audio_image|sounds)/out/(inputs_embeds|layer_0|audio_projection|logits|last_hidden_state|grad:apm\.conv1.*|grad:llm\..*)"
                                     r"|audio_image/out/grad:.*|gen_audio/.*",
                "odd/qwen2_5_omni": r"(text_only|video_audio|gen_left)/.*|talker/out/(mel|waveform|noise|talker_(inputs_embeds|input_text_ids|prefill_ids|thinker_reply_part))"
                                    r"|spoken/out/(logits|speech_inputs|grad:(?!talker|thinker\.model\.layers).*)|audio_image/out/(logits|audio_conv1|inputs_embeds|layer_0|audio_layer_0|vision_block_\d|grad:.*(merger|conv1"
                                    r"|patch_embed|k_proj\.bias).*)|woven/out/(logits|last_hidden_state|inputs_embeds|layer_0|(patch_embed|vision_block|audio_conv|audio_layer).*)",
                "odd/qwen2_5_vl": r"(image_batch|mixed|video)/out/logits|(image_batch|video|mixed)/out/(layer_\d+|inputs_embeds)"
                                  r"|image_batch/out/(vision_block_\d+|merger|grad:visual\.merger\.mlp\.0\.weight)|text_only/.*"}
KEPT = {"odd/mistral": r"long/out/last_hidden_state",
        "seed1/llava": r"two_images/out/last_hidden_state", "odd/llava": r"two_images/out/last_hidden_state",
        "seed1/qwen2": r"batch/out/grad:model\.embed_tokens\.weight"}

# Folders and files that a set can do without.
LEFT_OUT = {"seed1/llava": ("checkpoint_original", "vision_tower", "media/square.png", "media/tall.png", "media/wide.jpg")}

# Of sound a little of each kind; files of which nothing is kept go too.
AUDIO_KEPT = (r"(mono_8k_8bit\.wav|stereo_44k1\.(flac|mp3))/resampled|stereo_44k1\.flac/mel_128(_pad)?|stereo_44k1\.mp3/mel_80(_pad)?"
              r"|(mono_8k_8bit\.wav|mono_16k\.mp3|stereo_44k1\.ogg|mono_48k_opus\.ogg)/alone_80|[^/]*_(8bit\.wav|opus\.ogg|16k\.mp3)/frames")


def shrink(folder, name):
    def is_kept(tensor):
        if name.endswith("/audio_preprocess"):
            return re.fullmatch(AUDIO_KEPT, tensor)
        if re.fullmatch(KEPT.get(name, ""), tensor):
            return True
        return not DROPPED.fullmatch(tensor) and not re.fullmatch(ALSO_DROPPED.get(name, ""), tensor)

    tensors, meta = load_file(folder / "reference.safetensors"), read_json(folder / "reference.json")
    keep = {n: t for n, t in tensors.items() if is_kept(n)}
    save_file(keep, folder / "reference.safetensors", metadata={"format": "pt"})
    shutil.rmtree(folder / "checkpoint_no_talker", ignore_errors=True)      # the same weights once more
    for part in LEFT_OUT.get(name, ()):
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()
    if "rows" in meta:
        meta["rows"] = {n: rows for n, rows in meta["rows"].items() if f"{n}/in/input_ids" in keep}
    for clip in (folder / "audio").glob("*"):
        if not any(tensor.startswith(clip.name + "/") for tensor in keep):
            clip.unlink()
    meta["dropped"] = sorted(n for n in tensors if n not in keep)
    meta["tensors"] = {n: m for n, m in meta["tensors"].items() if n in keep}
    write_json(folder / "reference.json", meta, indent=1)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=HERE.parent / "fixtures" / "oracle")
    args = ap.parse_args()
    for name, (flags, families) in SETS.items():
        with tempfile.TemporaryDirectory() as made:
            subprocess.run([sys.executable, HERE / "make_oracles.py", "--out", made, "--family", ",".join(families), *flags], check=True)
            target = args.out / name
            shutil.rmtree(target, ignore_errors=True)
            for family in families:
                shutil.copytree(Path(made) / family, target / family)
                if not family.startswith("train_"):
                    shrink(target / family, f"{name}/{family}")
    total = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{args.out}: {total / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
