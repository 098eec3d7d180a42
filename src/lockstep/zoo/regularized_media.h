// What LLaMA-Factory makes of pictures and films before a model's own processor takes them: another size, so many frames.
// Source: LLaMA-Factory 0.9.5, data/mm_plugin.py _preprocess_image, _get_video_sample_indices.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/data/image.h"
#include "lockstep/data/processor.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

struct RegularSize {
  int64_t least = 0, most = 0;  // pixels; 0: no such bound
  bool stretches_thin = false;  // edges to 28, and what is longer than 200 times as wide to 180 times: Qwen's
};

/// What a frame is brought to; a row's own bound of a film goes before the person's.
RegularSize regular_frame(const MediaOptions& options, bool stretches_thin);

/// The sizes {width, height} that a picture goes through: within `most`, up to `least`, not thin. Without steps: none.
std::vector<std::array<int64_t, 2>> regular_steps(std::array<int64_t, 2> edges, const RegularSize& size);

/// The same of a picture, each step by Pillow's bicubic filter.
Image regular(Image image, const RegularSize& size);

/// FPS (2) frames a second and FPS_MAX_FRAMES (128) at most, rounded down, at places rounded down; an odd last one is for the
/// family to repeat. What a row says itself goes before.
FilmChoice regular_frames(const VideoFacts& film, const Video& row, const MediaOptions& options);

/// What is left for the family: all but the sizes that media have been brought to by then, where they are LLaMA-Factory's.
MediaOptions options_of_family(MediaOptions options);

}  // namespace lockstep
