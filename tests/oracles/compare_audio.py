#!/usr/bin/env python3
"""Compares Lockstep's samples and features with librosa itself: by hand, in a Python with librosa, soundfile, torch and transformers.

  compare_audio.py LOCKSTEP [--seed N]     makes an audio_preprocess oracle whose samples are librosa.load's, and verifies it

The recorded oracles use soxr without librosa (oraclelib/fam_audio.py); that both are equal to the bit is looked at here too.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import librosa
import numpy as np
import soundfile

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from oraclelib import fam_audio  # noqa: E402


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("lockstep", type=Path)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    unlike = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", "-W", "ignore", HERE / "make_oracles.py", "--out", folder, "--seed", str(args.seed),
                        "--family", "audio_preprocess"], check=True)
        for path in sorted((Path(folder) / "audio_preprocess" / "audio").iterdir()):
            theirs, _ = librosa.load(path, sr=16000, mono=True)
            raw, rate = soundfile.read(path, dtype="float32")
            ours = fam_audio.resampled(np.mean(raw.T, axis=0) if raw.ndim == 2 else raw, rate)
            same = ours.shape == theirs.shape and bool((ours == theirs).all())
            unlike += not same
            print(f"{path.name:24s} {len(theirs):7d} samples, the oracle's are {'equal' if same else 'OTHERS'}")
        done = subprocess.run([args.lockstep.resolve(), "verify", Path(folder) / "audio_preprocess"], check=False)
    return 1 if unlike or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
