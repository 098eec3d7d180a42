// Films as files: what they are, some of their frames, their sound. FFmpeg reads them, where it is installed: nothing needs
// it to be built, and a film without it is an error of its row.
//
// Example:
//   const VideoFile film("clips/a.mp4", "rows.jsonl:3", {.search_path = path});
//   std::vector<Image> ends;
//   film.read_frames([&](int64_t frames) { ends.clear(); return std::vector<int64_t>{0, frames - 1}; },
//                    [&](size_t, Image frame) { ends.push_back(std::move(frame)); });
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/process.h"
#include "lockstep/base/search_path.h"
#include "lockstep/data/audio.h"
#include "lockstep/data/image.h"
#include "lockstep/data/video_facts.h"

namespace lockstep {

/// At most so many different frames of one film are read.
inline constexpr size_t kMaxChosenFrames = 8192;

/// How films are read.
struct VideoReading {
  std::string search_path = kUsualSearchPath;           // where ffmpeg and ffprobe are looked for, as PATH has it
  Clock::duration patience = std::chrono::seconds(60);  // without a further frame
};

/// A film, opened: local files and data: URIs alone, by content and not by name (MP4, MOV, MKV, WebM, AVI, GIF, MPEG, FLV,
/// ASF, Ogg). Nothing that a file names besides is followed. One thread at a time.
class VideoFile {
 public:
  /// `reference`: a path or a data: URI. Throws UserError(kData) naming it and `where` (the row): no such file, a folder, no
  /// film, a film that is too large (video_facts.h), no FFmpeg.
  VideoFile(const std::string& reference, const std::string& where, VideoReading reading = {});

  const VideoFacts& facts() const { return facts_; }
  const std::string& name() const { return name_; }  // "rows.jsonl:3: video a.mp4"

  /// Of a film of so many frames those to be taken, rising; one may stand several times.
  using Choose = std::function<std::vector<int64_t>(int64_t frames)>;
  /// `place`: in what was chosen.
  using Take = std::function<void(size_t place, Image frame)>;
  /// Frames count from 0 in the order in which they are shown, all that can be decoded; 8-bit RGB, turned upright, of one
  /// size. `choose` is called again, and what was taken before counts no more, where the film turns out to have another
  /// number of frames than its header says; so nothing depends on the header. To the bit what decord gives, and
  /// PyAV's to_ndarray(format="rgb24") over FFmpeg 5: swscale with SWS_BILINEAR. Throws UserError(kData) for a film that is cut
  /// short or damaged, and what the two functions throw.
  void read_frames(const Choose& choose, const Take& take) const;

  /// One channel: the same samples as librosa.load(path, sr=rate), which has 16-bit samples of FFmpeg. Throws UserError(kData): no
  /// sound in it, longer than the limits.
  Audio read_sound(const AudioLimits& limits = {}) const;

 private:
  std::vector<std::string> input_words(const char* program) const;
  std::string probe() const;
  int64_t decode(const std::vector<int64_t>& chosen, const Take& take) const;
  UserError damaged(const std::string& said, int64_t frames) const;

  VideoReading reading_;
  std::string name_;
  Descriptor file_;
  VideoFacts facts_;
};

}  // namespace lockstep
