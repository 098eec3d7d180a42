#!/usr/bin/env python3
"""How long 1,000 clips of 10 s take to become log-mel features on one core: ours, and librosa with WhisperFeatureExtractor.

  bench/audio.py [--python .venv-bench/bin/python] [--clips 250] [--passes 3] [--out bench/results/audio.json]

The Python has librosa, soundfile, torch and transformers (`make bench` installs them), and writes the clips: of each kind (16 kHz
mono WAV, 44.1 kHz stereo WAV, 48 kHz stereo FLAC, 44.1 kHz stereo MP3) --clips paths over ten files. Both sides are held to one core
and one thread, take turns, and count the fastest of --passes. Fails when ours is not three times as fast over all.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import provenance

ROOT = provenance.ROOT
OURS = ROOT / "build/release/bin/audio_features"
PEER = ROOT / "bench/peers/audio_peer.py"
KINDS = {"16 kHz mono WAV": ("wav", 16000, 1), "44.1 kHz stereo WAV": ("wav", 44100, 2), "48 kHz stereo FLAC": ("flac", 48000, 2),
         "44.1 kHz stereo MP3": ("mp3", 44100, 2)}
FILES, SECONDS, LEAST = 10, 10, 3.0
WRITE = """
import json, sys
import numpy as np, soundfile as sf
for path, rate, channels, seed, seconds in json.loads(sys.argv[1]):
    rng, t = np.random.default_rng(seed), np.arange(rate * seconds) / rate
    waves = [0.3 * np.sin(2 * np.pi * (rng.uniform(100, 400) * t + rng.uniform(20, 150) * t * t)) for _ in range(channels)]
    sf.write(path, np.stack(waves, -1) + 0.02 * rng.standard_normal((len(t), channels)), rate)
"""


def measured(*words):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1",
           "CUDA_VISIBLE_DEVICES": ""}
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(["taskset", "-c", str(core), *map(str, words)], capture_output=True, text=True, check=False, env=env)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--python", default=str(ROOT / ".venv-bench/bin/python"), help="one with librosa, soundfile, torch and transformers")
    args.add_argument("--clips", type=int, default=250, help="of each kind")
    args.add_argument("--passes", type=int, default=3)
    provenance.add_flags(args, "audio.json")
    args = args.parse_args()
    provenance.check_place(args)
    rows, total = [], {"ours": 0.0, "librosa": 0.0}
    print("| clips of 10 s | ours | librosa, WhisperFeatureExtractor | times as fast |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (suffix, rate, channels)) in enumerate(KINDS.items()):
            paths = [str(pathlib.Path(folder) / f"{number}_{i}.{suffix}") for i in range(FILES)]
            words = [[path, rate, channels, 10 * number + i, SECONDS] for i, path in enumerate(paths)]
            subprocess.run([args.python, "-W", "ignore", "-c", WRITE, json.dumps(words)], check=True)
            clips = [paths[i % FILES] for i in range(args.clips)]
            ours, theirs = [], []
            for _ in range(args.passes):
                ours.append(measured(OURS, *clips))
                theirs.append(measured(args.python, "-W", "ignore", PEER, *clips))
            if ours[0]["frames"] != theirs[0]["frames"]:
                sys.exit(f"{name}: {ours[0]['frames']} frames, librosa's are {theirs[0]['frames']}")
            row = {"name": name, "clips": args.clips, "passes": args.passes, "ours": min(x["seconds"] for x in ours), "librosa": min(x["seconds"] for x in theirs)}
            rows.append({**row, "ratio": round(row["librosa"] / row["ours"], 2)})
            for who in total:
                total[who] += row[who]
            each = {who: 1000 * row[who] / args.clips for who in total}
            print(f"| {name} | {each['ours']:.2f} ms | {each['librosa']:.2f} ms | {rows[-1]['ratio']:.2f} |", flush=True)
    ratio = total["librosa"] / total["ours"]
    rows.append({"name": "all", "clips": args.clips * len(KINDS), **total, "ratio": round(ratio, 2)})
    listed = subprocess.run([args.python, "-c", "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in "
                             "('librosa', 'soundfile', 'soxr', 'torch', 'transformers')}))"], capture_output=True, text=True, check=True)
    provenance.write(args, rows, whole=args.clips >= 250, packages=json.loads(listed.stdout.splitlines()[-1]))
    print(f"\nall: {ratio:.2f} times as fast, at least {LEAST:.0f} wanted")
    return 0 if ratio >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
