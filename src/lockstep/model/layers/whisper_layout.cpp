// C clips, W frames of all of them, V states, M tokens.
#include "lockstep/model/layers/whisper_layout.h"

#include <algorithm>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kWindow = 3;  // frames that a convolution sees

struct Clip {
  int64_t frames = 0, width = 0;
};

std::vector<Clip> clips_of(const Tensor& frames_C2) {
  const Tensor host = frames_C2.cpu().contiguous();
  const auto* values = host.const_data_ptr<int64_t>();
  std::vector<Clip> clips;
  for (int64_t i = 0; i < host.size(0); ++i) clips.push_back({values[2 * i], values[2 * i + 1]});
  return clips;
}

Tensor table(const std::vector<int64_t>& values, int64_t columns) {
  return from_values(std::span<const int64_t>(values), {static_cast<int64_t>(values.size()) / columns, columns});
}

/// Windows around every `stride`-th of `count` rows behind `begin`; -1: beyond either end.
void add_windows(std::vector<int64_t>& windows, int64_t begin, int64_t count, int64_t stride) {
  for (int64_t middle = 0; middle < count; middle += stride) {
    for (int64_t at = middle - 1; at <= middle + 1; ++at) windows.push_back(at < 0 || at >= count ? -1 : begin + at);
  }
}

struct Places {
  std::vector<int64_t> frames, states, positions, ends, pooled;
  int64_t num_frames = 0, num_states = 0;

  void add(const Clip& clip, const WhisperLayoutConfig& config) {
    const int64_t first = num_states, chunk = config.chunk > 0 ? config.chunk : clip.width;
    for (int64_t begin = 0; begin < clip.width; begin += chunk) {
      add_chunk(std::min(chunk, clip.width - begin), clip.frames - begin);
    }
    const int64_t tokens = states_of(clip.frames) / config.pool;
    for (int64_t i = 0; i < tokens * config.pool; ++i) pooled.push_back(first + i);
  }
  /// `heard`: as many of its states may be looked at. As MiniCPM-o was made: positions of states are compared with the length
  /// in frames, of which there are twice as many. Source: MiniCPM-o 2.6 modeling_minicpmo.py get_audio_embedding.
  void add_chunk(int64_t width, int64_t heard) {
    const int64_t count = states_of(width);
    add_windows(frames, num_frames, width, 1);
    add_windows(states, num_frames, width, 2);
    for (int64_t i = 0; i < count; ++i) positions.push_back(i);
    ends.insert(ends.end(), {num_states + count, std::min(count, heard)});
    num_frames += width;
    num_states += count;
  }
  void close() {
    for (auto* windows : {&frames, &states}) std::replace(windows->begin(), windows->end(), int64_t{-1}, num_frames);
  }
};

}  // namespace

WhisperLayout::WhisperLayout(std::string name, const WhisperLayoutConfig& config)
    : Block(std::move(name), Component::kAudio, Modality::kAudio), config_(config) {
  reads({kAudioFrames});
  writes({"frame_windows", "state_windows", "audio_places", "clip_ends", "pool_windows"});
  never_recompute();
}

Flow WhisperLayout::forward(const Params&, const Flow& in, const Context&) const {
  const auto& here = *DeviceMemory::current();  // the lengths are the host's to read
  const c10::Device device = here.rehearsed() ? in[kAudioFrames].device() : c10::Device(here.torch_device());
  Places places;
  for (const Clip& clip : clips_of(in[kAudioFrames])) {
    check(clip.frames > 0 && clip.width >= clip.frames, "clips have frames");
    if (config_.chunk == 0 && states_of(clip.width) > config_.max_positions) {
      throw data_error(fmt::format("{}: expected clips of at most {} frames, found {}", name(),
                                   2 * config_.max_positions, clip.width),
                       "cut sound into clips of that length, a row each");
    }
    places.add(clip, config_);
  }
  places.close();
  return {{"frame_windows", sent_to(table(places.frames, kWindow), device)},
          {"state_windows", sent_to(table(places.states, kWindow), device)},
          {"audio_places", sent_to(table(places.positions, 1).flatten(), device)},
          {"clip_ends", table(places.ends, 2)},
          {"pool_windows", sent_to(table(places.pooled, config_.pool), device)}};
}

}  // namespace lockstep
