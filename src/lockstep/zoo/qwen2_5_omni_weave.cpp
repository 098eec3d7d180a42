// A film and its sound take turns among the tokens, chunk by chunk of time.
// Source: transformers 5.23 processing_qwen2_5_omni.py replace_video_with_audio_token, get_chunked_index.
#include <algorithm>

#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/zoo/qwen2_5_omni.h"

namespace lockstep::qwen2_5_omni {
namespace {

/// How many of the tokens that stand at these times each chunk holds. As the model was trained with: a token beyond the end of
/// a chunk begins the next one, even if it stands beyond the end of that as well.
std::vector<int64_t> chunks_of(const std::vector<double>& times, int64_t length) {
  std::vector<int64_t> counts;
  int64_t count = 0;
  for (const double time : times) {
    if (time >= static_cast<double>((static_cast<int64_t>(counts.size()) + 1) * length)) {
      counts.push_back(count);
      count = 0;
    }
    ++count;
  }
  counts.push_back(count);
  return counts;
}

}  // namespace

std::vector<MediaRun> woven_runs(const std::vector<MediaBlock>& blocks, const Thinker& thinker) {
  const MediaBlock &film = blocks.at(0), &sound = blocks.at(1);
  const auto& grid = film.facts.at("grid_thw");
  const int64_t of_a_frame = grid[1] * grid[2] / (thinker.vision.merge * thinker.vision.merge);
  std::vector<double> seen, heard;
  for (int64_t t = 0; t < grid[0]; ++t) {
    const double time = static_cast<double>(t) * film.step_seconds * static_cast<double>(thinker.positions_per_second);
    seen.insert(seen.end(), static_cast<size_t>(of_a_frame), time);
  }
  for (int64_t i = 0; i < thinker.sound.tokens_of(sound.shape[0]); ++i) heard.push_back(static_cast<double>(i));
  const auto pictures = chunks_of(seen, thinker.positions_of_chunk),
             clips = chunks_of(heard, thinker.positions_of_chunk);
  std::vector<MediaRun> runs;
  for (size_t i = 0; i < std::max(pictures.size(), clips.size()); ++i) {
    if (i < pictures.size()) runs.push_back({.token = thinker.tokens.video, .count = pictures[i], .block = 0});
    if (i < clips.size()) runs.push_back({.token = thinker.tokens.audio, .count = clips[i], .block = 1});
  }
  return runs;
}

}  // namespace lockstep::qwen2_5_omni
