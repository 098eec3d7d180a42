#include "lockstep/data/video_facts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

constexpr double kMostFps = 1000;

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

/// "30", "29.97"; 0 for what is no number, or none that a film has.
double number_of(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return std::isfinite(value) ? value : 0;
}

/// Of what does not fit, the nearest that does.
int64_t whole_of(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

/// "30000/1001"; 0 where the file does not say.
double rate_of(const Json& stream, const char* key) {
  const std::string text = text_of(stream, key);
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return 0;
  const double above = number_of(text.substr(0, slash)), below = number_of(text.substr(slash + 1));
  const double rate = below > 0 ? above / below : 0;
  return rate > 0 && rate <= kMostFps ? rate : 0;
}

/// Matroska's "00:00:03.000000000".
double clock_seconds(const std::string& text) {
  int hours = 0, minutes = 0;
  double seconds = 0;
  return std::sscanf(text.c_str(), "%d:%d:%lf", &hours, &minutes, &seconds) == 3
             ? hours * 3600.0 + minutes * 60.0 + seconds
             : 0;
}

const Json& part_of(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? *it : kNone;
}

/// Whether what is shown lies on its side.
bool lies_on_side(const Json& stream) {
  double turned = number_of(text_of(part_of(stream, "tags"), "rotate"));
  const auto sides = stream.find("side_data_list");
  if (sides != stream.end() && sides->is_array()) {
    for (const Json& side : *sides) {
      if (side.is_object() && side.contains("rotation")) turned = number_of(text_of(side, "rotation"));
    }
  }
  return std::abs(std::remainder(turned - 90, 180)) < 1;  // as near as FFmpeg has it
}

const Json* picture_track(const Json& streams) {
  for (const Json& stream : streams) {
    if (text_of(stream, "codec_type") != "video") continue;
    if (text_of(part_of(stream, "disposition"), "attached_pic") != "1") return &stream;
  }
  return nullptr;
}

/// Source: FFmpeg 5.1 fftools/ffmpeg_opt.c, which of several tracks is taken.
std::optional<VideoFacts::Sound> sound_track(const Json& streams) {
  std::optional<VideoFacts::Sound> best;
  double highest = -1;
  for (const Json& stream : streams) {
    if (text_of(stream, "codec_type") != "audio") continue;
    const VideoFacts::Sound sound{.stream = whole_of(text_of(stream, "index")),
                                  .rate = whole_of(text_of(stream, "sample_rate")),
                                  .channels = whole_of(text_of(stream, "channels"))};
    const double chosen = text_of(part_of(stream, "disposition"), "default") == "1" ? 1e8 : 0;
    const double score = static_cast<double>(sound.channels) + chosen;
    if (score <= highest) continue;
    highest = score;
    best = sound;
  }
  return best;
}

void read_length(const Json& stream, const Json& format, VideoFacts& facts) {
  facts.seconds = number_of(text_of(stream, "duration"));
  if (facts.seconds <= 0) facts.seconds = clock_seconds(text_of(part_of(stream, "tags"), "DURATION"));
  if (facts.seconds <= 0) facts.seconds = number_of(text_of(format, "duration"));
  facts.seconds = std::max(0.0, facts.seconds);
  const double stated = number_of(text_of(stream, "nb_frames"));
  const double frames = stated > 0 ? stated : std::nearbyint(facts.seconds * facts.fps);
  facts.frames = frames <= static_cast<double>(kMaxVideoFrames) ? static_cast<int64_t>(frames) : kMaxVideoFrames + 1;
}

}  // namespace

VideoFacts video_facts(std::string_view json, const std::string& name) {
  const Json all = parse_json_or_discard(json);
  const auto streams = all.is_object() ? all.find("streams") : all.end();
  const Json* stream = streams != all.end() && streams->is_array() ? picture_track(*streams) : nullptr;
  if (stream == nullptr) {
    throw data_error(fmt::format("{}: expected a track of moving pictures, found none", name),
                     "is it a recording of sound? Then it is an audio");
  }
  VideoFacts facts{.width = whole_of(text_of(*stream, "width")),
                   .height = whole_of(text_of(*stream, "height")),
                   .fps = rate_of(*stream, "avg_frame_rate"),
                   .sound = sound_track(*streams)};
  if (facts.width <= 0 || facts.height <= 0 || facts.width > kMaxVideoPixels / facts.height) {
    throw data_error(fmt::format("{}: expected frames of 1 to {} pixels, found {}x{}", name, kMaxVideoPixels,
                                 facts.width, facts.height),
                     "scale it down: ffmpeg -i IN -vf scale=-2:720 OUT.mp4");
  }
  if (lies_on_side(*stream)) std::swap(facts.width, facts.height);
  if (facts.fps == 0) facts.fps = rate_of(*stream, "r_frame_rate");
  if (facts.fps == 0) {
    throw data_error(
        fmt::format("{}: expected frames a second, above 0 to {:g}, found none in its header", name, kMostFps),
        "write it anew: ffmpeg -i IN OUT.mp4");
  }
  read_length(*stream, part_of(all, "format"), facts);
  if (facts.seconds > kMaxVideoSeconds || facts.frames > kMaxVideoFrames) {
    throw data_error(fmt::format("{}: expected at most {:g} s and {} frames, found {:.2f} s at {:.2f} frames a second",
                                 name, kMaxVideoSeconds, kMaxVideoFrames, facts.seconds, facts.fps),
                     "cut it into clips, a row each: ffmpeg -i IN -c copy -f segment -segment_time 600 OUT%03d.mp4");
  }
  return facts;
}

}  // namespace lockstep
