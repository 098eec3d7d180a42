#include "lockstep/data/audio.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/audio_rate.h"
#include "lockstep/data/base64.h"

namespace lockstep {
namespace {

const std::filesystem::path kClips =
    std::filesystem::path(LOCKSTEP_FIXTURES) / "oracle" / "seed1" / "audio_preprocess" / "audio";

std::string clip(const std::string& name) { return read_text(kClips / name); }

void add_number(std::string& to, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

/// A WAV of 16-bit samples; `stated`: bytes of sound in its header.
struct Wav {
  uint32_t rate = 16000;
  uint16_t channels = 1;
  std::string sound = std::string(6400, '\1');
  uint16_t format = 1, bits = 16;
  int64_t stated = -1;

  std::string bytes() const {
    std::string out = "RIFF____WAVEfmt ";
    add_number(out, 16, 4);
    add_number(out, format, 2);
    add_number(out, channels, 2);
    add_number(out, rate, 4);
    add_number(out, uint64_t{rate} * channels * bits / 8, 4);
    add_number(out, channels * bits / 8, 2);
    add_number(out, bits, 2);
    out += "data";
    add_number(out, stated < 0 ? sound.size() : static_cast<uint64_t>(stated), 4);
    return out + sound;
  }
};

std::string sound_of(const std::vector<float>& samples) {
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(float)};
}

/// What a person is told; "" when the clip is taken.
std::string complaint(const std::string& bytes, const AudioLimits& limits = {}) {
  try {
    (void)decode_audio(bytes, "rows.jsonl:3: audio a.wav", limits);
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
}
bool refused(const std::string& bytes, const std::string& said, const AudioLimits& limits = {}) {
  const std::string found = complaint(bytes, limits);
  if (found.find(said) != std::string::npos && found.starts_with("rows.jsonl:3: audio a.wav: ")) return true;
  ADD_FAILURE() << "expected \"" << said << "\", found \"" << found << "\"";
  return false;
}

TEST(Audio, SamplesAreTheFilesOwnAtFullScaleOne) {
  const Audio audio = decode_audio(Wav{.sound = std::string("\0\0\0\x40\0\x80\xff\x7f", 8)}.bytes(), "a");
  EXPECT_EQ(audio.samples, (std::vector<float>{0, 0.5F, -1, 32767.0F / 32768}));
  EXPECT_EQ(audio.rate, 16000);
}

TEST(Audio, ChannelsAreAveragedBeforeTheRateChanges) {
  const std::string sound = sound_of({0.25F, 0.75F, -1, 0.5F, 3e-8F, 1});
  const Wav wav{.channels = 2, .sound = sound, .format = 3, .bits = 32};
  EXPECT_EQ(decode_audio(wav.bytes(), "a").samples, (std::vector<float>{0.5F, -0.25F, 0.5F}));
}

TEST(Audio, TheNewLengthIsRoundedUpAsLibrosaDoes) {
  EXPECT_EQ(decode_audio(Wav{.rate = 44100, .sound = std::string(2 * 443, '\0')}.bytes(), "a").samples.size(), 161U);
  EXPECT_EQ(decode_audio(Wav{.rate = 8000, .sound = std::string(2 * 443, '\0')}.bytes(), "a").samples.size(), 886U);
  EXPECT_EQ(decode_audio(Wav{.rate = 8000}.bytes(), "a", {.rate = 8000}).samples.size(), 3200U);
}

TEST(Audio, StretchesOfAnyLengthMakeTheSameSamples) {
  std::vector<float> wave(9000);
  for (size_t i = 0; i < wave.size(); ++i) wave[i] = std::sin(0.05F * static_cast<float>(i));
  const auto resampled = [&](size_t stretch) {
    AudioRate rate(44100, 16000);
    std::vector<float> out;
    for (size_t at = 0; at < wave.size(); at += stretch)
      rate.push(std::span(wave).subspan(at, std::min(stretch, wave.size() - at)), out);
    rate.finish(out);
    return out;
  };
  const std::vector<float> whole = resampled(wave.size());
  EXPECT_EQ(whole.size(), 3266U);
  EXPECT_EQ(resampled(1), whole);
  EXPECT_EQ(resampled(777), whole);
}

TEST(Audio, EveryKindIsKnownByContent) {
  for (const char* name : {"mono_8k_8bit.wav", "stereo_44k1.flac", "stereo_44k1.mp3", "stereo_44k1.ogg",
                           "mono_48k_opus.ogg", "mono_16k.mp3"}) {
    const std::string bytes = clip(name);
    const Audio audio = decode_audio(bytes, name);
    EXPECT_GE(audio.seconds(), 0.25) << name;
    const std::string tagged = std::string("ID3\4\0\0\0\0\0\5title", 15) + bytes;
    EXPECT_EQ(decode_audio(tagged, name).samples, audio.samples) << name;
  }
}

TEST(Audio, RowsNameFilesOrHoldTheBytes) {
  const std::string path = (kClips / "mono_16k.mp3").string();
  const Audio audio = load_audio(path, "rows.jsonl:3");
  EXPECT_EQ(load_audio("data:audio/mp3;base64," + encode_base64(clip("mono_16k.mp3")), "rows.jsonl:3").samples,
            audio.samples);
  EXPECT_EQ(load_audio("data:;base64," + encode_base64(clip("mono_16k.mp3")), "rows.jsonl:3").samples, audio.samples);
  try {
    (void)load_audio("/no/such.wav", "rows.jsonl:3");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.message(), "rows.jsonl:3: audio /no/such.wav: no such file");
  }
}

TEST(Audio, WhatIsNoSoundIsNamedWithItsCure) {
  refused("", "expected WAV, FLAC, MP3 or Ogg sound, found an empty file");
  refused(std::string("\0\0\0\x20", 4) + "ftypM4A xxxx",
          "found an MP4 or M4A file; hint: convert it once: ffmpeg -i IN");
  refused("\xFF\xF1\x50\x80 and so on", "found an AAC stream; hint: convert it once: ffmpeg");
  refused("\x89PNG\r\n\x1a\n picture", "found a PNG picture");
  refused("hello, world", "found 12 bytes that begin with 68 65 6c 6c 6f 2c 20 77");
  refused(Wav{.sound = ""}.bytes(), "expected sound, found a WAV file without samples");
}

TEST(Audio, ClipsOutsideOfWhatIsSoundAreRefused) {
  refused(Wav{.channels = 9}.bytes(), "expected at most 8 channels, found 9");
  refused(Wav{.channels = 0}.bytes(), "WAV of 6444 bytes cannot be decoded");
  refused(Wav{.rate = 1999}.bytes(), "expected 2000 to 384000 samples a second, found 1999");
  refused(Wav{.rate = 384001}.bytes(), "expected 2000 to 384000 samples a second, found 384001");
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  for (const float wrong : {nan, infinite, -infinite, 2e6F}) {
    const Wav wav{.channels = 2, .sound = sound_of({0, 0, 0, wrong, 0, 0}), .format = 3, .bits = 32};
    refused(wav.bytes(), "in frame 1; hint: was it saved from numbers that had overflowed");
  }
}

TEST(Audio, LongClipsAreRefusedAndNeverCut) {
  const AudioLimits limits{.max_seconds = 0.2, .why = "the audio tower reads 0.2 s"};
  EXPECT_EQ(decode_audio(Wav{}.bytes(), "a", limits).samples.size(), 3200U);
  refused(Wav{.sound = std::string(6402, '\1')}.bytes(),
          "expected at most 0.2 s of sound (the audio tower reads 0.2 s), found 0.20 s; hint: cut it into clips",
          limits);
  // A header of FLAC that states 2^36 - 1 samples, of which nothing is allocated.
  std::string huge = clip("stereo_44k1.flac");
  huge[21] = static_cast<char>(huge[21] | 0x0F);
  for (size_t i = 22; i < 26; ++i) huge[i] = '\xFF';
  refused(huge, "expected at most 7200 s of sound (longer recordings are no clips), found 1558264.78 s");
}

TEST(Audio, FilesThatAreCutShortAreRefused) {
  for (const char* name : {"mono_8k_8bit.wav", "stereo_44k1.flac", "stereo_44k1.mp3", "stereo_44k1.ogg",
                           "mono_48k_opus.ogg", "mono_16k.mp3"}) {
    const std::string bytes = clip(name);
    EXPECT_EQ(complaint(bytes), "");
    for (const double part : {0.1, 0.5, 0.8, 0.99}) {
      const auto length = static_cast<size_t>(part * static_cast<double>(bytes.size()));
      EXPECT_NE(complaint(bytes.substr(0, length)), "") << name << " cut at " << length;
    }
    EXPECT_NE(complaint(bytes.substr(0, bytes.size() - 1)), "") << name << " without its last byte";
    EXPECT_NE(complaint(bytes.substr(0, bytes.size() / 2) + bytes.substr(bytes.size() / 2 + 700)), "")
        << name << " without some in the middle";
  }
}

TEST(Audio, HeadersOfWavAreComparedWithTheFile) {
  refused(Wav{.stated = 6402}.bytes(), "its header states 6402 bytes of sound, 6400 are there");
  refused(Wav{.stated = 2'000'000'000}.bytes(), "its header states 2000000000 bytes of sound, 6400 are there");
  refused(Wav{.stated = 0}.bytes(), "its header states 0 bytes of sound, 6400 are there");
  for (const int64_t piped :
       std::initializer_list<int64_t>{0xFFFF'FFFF, 0xFFFF'FFDB, 0xFFFF'F000, 0x8000'0000, 0x7FFF'FFFF, 0x7FFF'F000})
    EXPECT_EQ(decode_audio(Wav{.stated = piped}.bytes(), "a").samples.size(), 3200U) << piped;
  std::string big = "RF64\xff\xff\xff\xffWAVEds64";
  add_number(big, 28, 4);
  add_number(big, 0, 8);
  add_number(big, 2'000'000'000'000, 8);
  refused(big + std::string(12, '\0') + Wav{.stated = 0xFFFF'FFFF}.bytes().substr(12),
          "its header states 2000000000000 bytes of sound, 6400 are there");
}

/// MPEG 1 layer 3, 44,100 a second, one channel: 1152 samples of silence.
std::string silent_frame(bool large) {
  std::string frame(large ? 1044 : 104, '\0');
  return frame.replace(0, 4, large ? "\xFF\xFB\xE0\xC4" : "\xFF\xFB\x10\xC4");
}

/// A large frame and 99 small ones: by the first, the file would hold 11.
std::string mp3_of_100_frames() {
  std::string bytes = silent_frame(true);
  for (int i = 0; i < 99; ++i) bytes += silent_frame(false);
  return bytes;
}

TEST(Audio, EveryFrameOfAnMp3IsHeardWithoutAHeaderToo) {
  constexpr size_t kSamples = 41796;  // 100 frames of 1152 samples, 44,100 a second, at 16,000
  const std::string bare = mp3_of_100_frames(), tag = "TAG" + std::string(125, '\0');
  EXPECT_EQ(decode_audio(bare, "a").samples.size(), kSamples);
  EXPECT_EQ(decode_audio(bare + tag, "a").samples.size(), kSamples);
  EXPECT_NE(complaint(bare.substr(0, bare.size() - 1)), "");
  EXPECT_NE(complaint(bare.substr(0, 3000) + bare.substr(3050)), "");
  const std::string whole = clip("stereo_44k1.mp3"), without = whole.substr(whole.find("\xFF\xFB", 4));
  EXPECT_EQ(whole.size() - without.size(), 417U);  // its header
  EXPECT_GT(decode_audio(without, "a").samples.size(), decode_audio(whole, "a").samples.size());
}

TEST(Audio, HeadersOfMp3ThatMiscountLoseNoFrame) {
  constexpr size_t kSamples = 41796;
  for (const char stated : {'\x63', '\x65'}) {
    std::string xing = silent_frame(true);
    xing.replace(21, 12, std::string("Xing\0\0\0\1\0\0\0", 11) + stated);
    EXPECT_EQ(decode_audio(xing + mp3_of_100_frames(), "a").samples.size(), kSamples) << int{stated};
  }
  std::string vbri = silent_frame(true);
  vbri.replace(36, 4, "VBRI").replace(36 + 14, 4, std::string("\0\0\0\x64", 4));
  EXPECT_EQ(decode_audio(vbri + mp3_of_100_frames(), "a").samples.size(), kSamples);
}

TEST(Audio, ATagBehindFlacIsNoSound) {
  const std::string flac = clip("stereo_44k1.flac"), tagged = flac + "TAG" + std::string(125, '\0');
  EXPECT_EQ(decode_audio(tagged, "a").samples, decode_audio(flac, "a").samples);
}

TEST(Audio, PartsOfAStreamThatDecodersLeaveOutAreRefused) {
  const std::string ogg = clip("stereo_44k1.ogg"), mp3 = clip("stereo_44k1.mp3");
  refused(ogg + ogg, "expected one stream of sound in the Ogg file, found several");
  std::string flipped = ogg;
  flipped[flipped.size() / 2] ^= 1;
  refused(flipped, "has another checksum than it states");
  refused(mp3 + mp3, "frames, ");
  const std::string tagged = mp3 + "TAG" + std::string(125, '\0');
  EXPECT_EQ(decode_audio(tagged, "a").samples, decode_audio(mp3, "a").samples);
}

}  // namespace
}  // namespace lockstep
