// TFRecord framing and the few TensorBoard protocol messages that a training run needs, encoded by hand.
//
// Example:
//   file << frame_record(file_version_event(now)) << frame_record(scalar_event(now, 10, "train/loss", 0.5F));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// One record as it stands in the file: length, its masked crc, the data, its masked crc; little endian.
std::string frame_record(std::string_view data);

/// The first event of every file. `wall_time` in seconds since 1970. Source: tensorboard event.proto.
std::string file_version_event(double wall_time);

/// "A session starts here": readers forget what earlier files of the folder say of `step` and later ones.
std::string session_start_event(double wall_time, int64_t step);

/// One point of a curve. Source: tensorboard summary.proto (Summary.Value.simple_value).
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

/// A text, shown by TensorBoard's text page as Markdown.
std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view text);

}  // namespace lockstep
