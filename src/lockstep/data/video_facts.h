// What a film says of itself: ffprobe's words as numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What a film may be at most; what has more is refused before it is decoded, or where it is found to have more.
inline constexpr double kMaxVideoSeconds = 4 * 3600;
inline constexpr int64_t kMaxVideoFrames = 1'000'000;
inline constexpr int64_t kMaxVideoPixels = int64_t{8192} * 4320;  // of a frame

struct VideoFacts {
  int64_t width = 0, height = 0;  // of a frame as it is shown: turned as the film asks for
  double fps = 0;                 // frames a second, over the whole film
  double seconds = 0;             // as its header says; 0: it does not
  int64_t frames = 0;             // as its header says, or as its length says; 0: neither. Decoding alone knows
  struct Sound {
    int64_t stream = 0, rate = 0, channels = 0;
  };
  std::optional<Sound> sound = {};  // the track that FFmpeg would take: the default one, then that of most channels
};

/// Of ffprobe's JSON. `name` is the film's, for messages. Throws UserError(kData): no track of pictures, a size or length
/// beyond what is read, no frame rate.
VideoFacts video_facts(std::string_view json, const std::string& name);

}  // namespace lockstep
