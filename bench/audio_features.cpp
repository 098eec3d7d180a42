// How long sound takes to become features, on one thread: reading, decoding, one channel, 16 kHz, 128 mel bins.
//
//   audio_features FILE…       writes {"seconds": …, "clips": …, "frames": …}
#include <chrono>
#include <iostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/data/audio.h"
#include "lockstep/data/log_mel.h"

using namespace lockstep;

int main(int count, char** words) {
  const LogMelMaker maker({.bins = 128});
  int64_t frames = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i < count; ++i) frames += maker.make(load_audio(words[i], "bench").samples, words[i]).frames;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << Json{{"seconds", seconds}, {"clips", count - 1}, {"frames", frames}}.dump() << "\n";
}
