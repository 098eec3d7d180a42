#include "lockstep/data/audio.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/audio_kind.h"
#include "lockstep/data/audio_rate.h"
#include "lockstep/data/media_bytes.h"
#include "lockstep/data/sound_reader.h"

namespace lockstep {

namespace {

constexpr float kLoudest = 1e6F;  // full scale is 1: beyond, the numbers are no sound, and their powers overflow

void check_form(const SoundReader& reader, const std::string& where) {
  if (reader.channels() > kMaxAudioChannels) {
    throw data_error(
        fmt::format("{}: expected at most {} channels, found {}", where, kMaxAudioChannels, reader.channels()),
        "mix it: ffmpeg -i IN -vn -ac 1 -ar 16000 OUT.flac");
  }
  if (reader.rate() < kMinAudioRate || reader.rate() > kMaxAudioRate) {
    throw data_error(fmt::format("{}: expected {} to {} samples a second, found {}", where, kMinAudioRate,
                                 kMaxAudioRate, reader.rate()),
                     "is the header right? ffmpeg -ar RATE -i IN OUT.flac says another");
  }
}

/// `frames` of which a file has, or states, more than the clip may.
void check_length(int64_t frames, int64_t rate, bool stated, const AudioLimits& limits, const std::string& where) {
  const double seconds = static_cast<double>(frames) / static_cast<double>(rate);
  if (seconds <= limits.max_seconds) return;
  throw data_error(fmt::format("{}: expected at most {:g} s of sound ({}), found {}{:.2f} s", where, limits.max_seconds,
                               limits.why, stated ? "" : "more: at least ", seconds),
                   fmt::format("cut it into clips, a row each: ffmpeg -i IN -f segment -segment_time {:g} OUT%03d.flac",
                               limits.max_seconds));
}

/// The mean of a frame's channels, in the order in which NumPy sums so few. Inlined where `channels` is known: then the loop
/// over frames becomes vectors.
inline float mean_of(const float* frame, int64_t channels) {
  float sum = frame[0];
  if (channels == 8) {
    sum = ((frame[0] + frame[1]) + (frame[2] + frame[3])) + ((frame[4] + frame[5]) + (frame[6] + frame[7]));
  } else {
    for (int64_t c = 1; c < channels; ++c) sum += frame[c];
  }
  return sum / static_cast<float>(channels);
}

/// Refuses what is no sound; `before`: frames before these.
void check_samples(std::span<const float> block, int64_t channels, int64_t before, const std::string& where) {
  const auto is_none = [](float value) { return !(std::abs(value) <= kLoudest); };  // NaN too
  int32_t wrong = 0;
  for (const float value : block) wrong |= is_none(value) ? 1 : 0;  // a loop that becomes vectors
  if (wrong == 0) return;
  const auto found = std::find_if(block.begin(), block.end(), is_none);
  throw data_error(fmt::format("{}: expected samples around -1 to 1, found {} in frame {}", where, *found,
                               before + (found - block.begin()) / channels),
                   "was it saved from numbers that had overflowed, or were never scaled?");
}

/// Of frames of `channels` their means: in `block` itself where there is one channel.
std::span<const float> mixed(std::span<const float> block, int64_t channels, std::vector<float>& mono) {
  if (channels == 1) return block;
  const size_t frames = block.size() / static_cast<size_t>(channels);
  if (channels == 2) {
    for (size_t i = 0; i < frames; ++i) mono[i] = mean_of(&block[2 * i], 2);
  } else {
    for (size_t i = 0; i < frames; ++i) mono[i] = mean_of(&block[i * static_cast<size_t>(channels)], channels);
  }
  return {mono.data(), frames};
}

}  // namespace

Audio decode_audio(std::string_view bytes, const std::string& where, const AudioLimits& limits) {
  constexpr size_t kBlock = 1 << 14;  // frames
  KnownAudio known = known_audio(bytes, where);
  const auto counted = check_whole(known, where);
  SoundReader reader(known, counted, where);
  check_form(reader, where);
  const auto stated = reader.stated_frames();
  if (stated) check_length(*stated, reader.rate(), true, limits, where);

  Audio audio{.rate = limits.rate, .samples = {}};
  AudioRate rate(reader.rate(), limits.rate);
  // Room for what a header states, while it states no more than a minute or two.
  constexpr double kMostRoom = 1 << 21;
  if (stated) {
    const double room =
        static_cast<double>(*stated) * static_cast<double>(limits.rate) / static_cast<double>(reader.rate());
    audio.samples.reserve(static_cast<size_t>(std::min(room, kMostRoom)) + (1 << 14));
  }
  const int64_t channels = reader.channels();
  std::vector<float> block(kBlock * static_cast<size_t>(channels)), mono(kBlock);
  int64_t frames = 0;
  while (const auto got = static_cast<size_t>(reader.read(block))) {
    const std::span<const float> here(block.data(), got * static_cast<size_t>(channels));
    check_samples(here, channels, frames, where);
    rate.push(mixed(here, channels, mono), audio.samples);
    frames += static_cast<int64_t>(got);
    check_length(frames, reader.rate(), false, limits, where);
  }
  if (stated && frames < *stated) {
    refuse_cut_audio(
        known.kind,
        fmt::format("its {} {} samples, {} could be read", counted ? "frames hold" : "header states", *stated, frames),
        where);
  }
  if (frames == 0)
    throw data_error(
        fmt::format("{}: expected sound, found a {} file without samples", where, audio_kind_name(known.kind)));
  rate.finish(audio.samples);
  return audio;
}

Audio load_audio(const std::string& reference, const std::string& where, const AudioLimits& limits) {
  const MediaBytes media = media_bytes(reference, "audio", where, kMaxTextFile);
  return decode_audio(media.bytes, media.name, limits);
}

}  // namespace lockstep
