"""librosa.load and WhisperFeatureExtractor over files, on one thread:   audio_peer.py FILE…"""
import json
import sys
import time

import librosa
import torch
from transformers import WhisperFeatureExtractor


def main():
    torch.set_num_threads(1)
    extractor = WhisperFeatureExtractor(feature_size=128)

    def frames_of(path):
        samples, _ = librosa.load(path, sr=16000, mono=True)
        made = extractor(samples, sampling_rate=16000, return_attention_mask=True, return_tensors="np")
        return int(made["attention_mask"].sum())

    frames_of(sys.argv[1])  # what is imported and compiled at the first call
    begin = time.perf_counter()
    frames = sum(frames_of(path) for path in sys.argv[1:])
    print(json.dumps({"seconds": time.perf_counter() - begin, "clips": len(sys.argv) - 1, "frames": frames}))


if __name__ == "__main__":
    main()
