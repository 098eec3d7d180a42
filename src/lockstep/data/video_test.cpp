// Films are made by FFmpeg's own encoders when the tests run, so without FFmpeg these are left out, and say so.
#include "lockstep/data/video.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/foreground.h"
#include "lockstep/base/json.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/data/base64.h"
#include "lockstep/data/random.h"
#include "lockstep/data/test_images.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::string search_path() { return Env::process().text("PATH").value_or(kUsualSearchPath); }

class Films : public InTestFolder {
 protected:
  void SetUp() override {
    program_ = program_on(search_path(), "ffmpeg");
    ASSERT_FALSE(program_.empty() || program_on(search_path(), "ffprobe").empty())
        << "FFmpeg is not installed: tools/setup.sh tests";
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string ffmpeg(Words words) const {
    Words all = {program_, "-v", "error", "-nostdin", "-y"};
    all.insert(all.end(), words.begin(), words.end());
    const Captured done = run_in_foreground(all, /*capture=*/true);
    EXPECT_EQ(done.code, 0) << testing::PrintToString(all);
    return done.output;
  }
  /// A moving pattern of this size, speed and length, encoded as `words` say.
  std::string film(const std::string& name, Words words, const std::string& size = "64x48",
                   const std::string& rate = "25", const std::string& seconds = "2") const {
    Words all = {"-f", "lavfi", "-i", fmt::format("testsrc=size={}:rate={}", size, rate), "-t", seconds, "-bitexact"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back(path(name));
    ffmpeg(all);
    return path(name);
  }
  std::string written(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  /// All frames of a file as FFmpeg gives them by itself, behind one another.
  std::string raw(const std::string& file) const {
    return ffmpeg({"-i", "file:" + file, "-map", "0:V:0", "-vf", "scale=flags=bilinear,format=rgb24", "-vsync", "0",
                   "-f", "rawvideo", "pipe:1"});
  }
  static VideoReading reading() { return {.search_path = search_path()}; }
  static VideoFile open(const std::string& file) { return {file, "rows.jsonl:3", reading()}; }

  static std::vector<Image> frames_of(const VideoFile& film, const VideoFile::Choose& choose) {
    std::vector<Image> frames;
    const auto choose_anew = [&](int64_t count) {
      frames.clear();
      return choose(count);
    };
    film.read_frames(choose_anew, [&](size_t place, Image frame) {
      EXPECT_EQ(place, frames.size());
      frames.push_back(std::move(frame));
    });
    return frames;
  }
  static std::vector<int64_t> all_of(int64_t count) {
    std::vector<int64_t> all(static_cast<size_t>(count));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    return all;
  }
  static std::string refusal(const std::function<void()>& what) {
    try {
      what();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
    return "no error";
  }
  static std::string refusal(const std::string& file) {
    return refusal([&] { (void)frames_of(open(file), all_of); });
  }

  std::string program_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Films, FramesAreFfmpegsBitForBit) {
  const std::string turned = film("to_turn.mp4", {"-c:v", "mpeg4"}, "64x48");
  ffmpeg({"-i", turned, "-c", "copy", "-metadata:s:v:0", "rotate=90", path("turned.mp4")});
  const std::vector<std::string> files = {
      film("plain.avi", {"-c:v", "mpeg4"}),
      film("fraction_b.mp4", {"-c:v", "mpeg4", "-bf", "2"}, "64x48", "30000/1001"),
      film("odd.mp4", {"-c:v", "mpeg4"}, "65x49"),
      film("uneven.mkv", {"-vf", "select='not(mod(n,3))+gt(n,20)'", "-vsync", "vfr", "-c:v", "ffv1"}),
      film("deep.mkv", {"-c:v", "ffv1", "-pix_fmt", "yuv420p10le"}),
      film("one.mp4", {"-frames:v", "1", "-c:v", "mpeg4"}),
      film("one.gif", {"-frames:v", "1"}),
      film("moves.gif", {"-r", "5"}),
      film("sound.mkv", {"-f", "lavfi", "-i", "sine=440", "-t", "2", "-c:v", "mpeg2video", "-c:a", "flac"}),
      film("stream.ts", {"-c:v", "mpeg2video"}),
      path("turned.mp4")};
  for (const auto& file : files) {
    const std::string expected = raw(file);
    const VideoFile film = open(file);
    const auto bytes = static_cast<size_t>(3 * film.facts().width * film.facts().height);
    const std::vector<Image> frames = frames_of(film, all_of);
    ASSERT_EQ(frames.size() * bytes, expected.size()) << file;
    for (size_t i = 0; i < frames.size(); ++i)
      ASSERT_EQ(std::memcmp(frames[i].pixels.data(), expected.data() + i * bytes, bytes), 0) << file << " frame " << i;
  }
  EXPECT_EQ(open(path("turned.mp4")).facts().height, 64) << "it stands upright";
}

TEST_F(Films, AnyFramesMayBeChosenAndOneMoreThanOnce) {
  const VideoFile film = open(this->film("a.mp4", {"-c:v", "mpeg4"}, "32x32", "25", "6"));
  const std::vector<Image> all = frames_of(film, all_of);
  ASSERT_EQ(all.size(), 150U);
  for (const std::vector<int64_t>& chosen : {std::vector<int64_t>{0, 0, 7, 149, 149}, {}, {3}}) {
    const std::vector<Image> some = frames_of(film, [&](int64_t) { return chosen; });
    ASSERT_EQ(some.size(), chosen.size());
    for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i].pixels, all[static_cast<size_t>(chosen[i])].pixels);
  }
}

TEST_F(Films, FactsAreTheFilmsOwn) {
  const VideoFacts plain = open(film("a.mp4", {"-c:v", "mpeg4"}, "64x48", "30000/1001")).facts();
  EXPECT_EQ(plain.width, 64);
  EXPECT_EQ(plain.height, 48);
  EXPECT_DOUBLE_EQ(plain.fps, 30000.0 / 1001);
  EXPECT_EQ(plain.frames, 60);
  EXPECT_NEAR(plain.seconds, 2.002, 1e-6);
  EXPECT_FALSE(plain.sound);
}

TEST_F(Films, WhatAHeaderSaysOfTheNumberOfFramesIsNotBelieved) {
  const VideoFile film =
      open(this->film("a.mkv", {"-vf", "select='lt(n,10)+gt(n,40)'", "-vsync", "vfr", "-c:v", "ffv1"}));
  std::vector<int64_t> told;
  const std::vector<Image> frames = frames_of(film, [&](int64_t count) {
    told.push_back(count);
    return std::vector<int64_t>{count - 1};
  });
  EXPECT_EQ(told, (std::vector<int64_t>{50, 19}));
  EXPECT_EQ(frames.size(), 1U);
  EXPECT_HAS(refusal([&] {
               (void)frames_of(film, [](int64_t count) -> std::vector<int64_t> {
                 throw data_error(fmt::format("too short: {}", count));
               });
             }),
             "too short: 19");
}

TEST_F(Films, AFileMayHaveAnyName) {
  const std::string plain = film("plain.mp4", {"-c:v", "mpeg4", "-frames:v", "3"});
  for (const char* name : {"-i", "concat:a|b.mp4", "http:x.mp4", "a b\n'%d.mp4", "crypto.txt"}) {
    fs::copy_file(plain, path(name));
    EXPECT_EQ(frames_of(open(path(name)), all_of).size(), 3U) << name;
  }
  const std::string data = "data:video/mp4;base64," + encode_base64(read_text(plain));
  EXPECT_EQ(frames_of(open(data), all_of).size(), 3U);
}

TEST_F(Films, WhatIsNoFilmIsToldApart) {
  const std::string whole = film("whole.mp4", {"-c:v", "mpeg4"});
  const std::string bytes = read_text(whole);
  const std::string early = film("early.mp4", {"-c:v", "mpeg4", "-movflags", "+faststart"});
  const std::string early_bytes = read_text(early), stream = read_text(film("a.avi", {"-c:v", "mpeg4"}));
  const std::string matroska = read_text(film("a.mkv", {"-c:v", "ffv1"}));
  const Image picture = drawn_image("noise", 8, 8, 1);
  ffmpeg({"-f", "lavfi", "-i", "sine=440", "-t", "1", "-c:a", "flac", path("sound.mkv")});
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {path("missing.mp4"), {"rows.jsonl:3: video ", "missing.mp4: no such file", "ROOT_IMAGE_DIR"}},
      {folder_.string(), {"expected a file, found a folder"}},
      {written("empty.mp4", ""), {"expected a film, found an empty file"}},
      {written("png.mp4", encode_png(picture)),
       {"expected a film, found a PNG picture", "a single picture is an image"}},
      {written("text.mp4", "These are words.\n"), {"expected a film that FFmpeg reads", "ffprobe says: "}},
      {written("list.m3u8", "#EXTM3U\n#EXTINF:2,\nwhole.mp4\n#EXT-X-ENDLIST\n"), {"expected a film that FFmpeg reads"}},
      {written("list.ffconcat", "ffconcat version 1.0\nfile 'whole.mp4'\n"), {"expected a film that FFmpeg reads"}},
      {path("sound.mkv"), {"expected a track of moving pictures, found none", "audio"}},
      {written("cut.mp4", bytes.substr(0, bytes.size() / 2)),
       {"expected a film that FFmpeg reads", "moov atom not found"}},
      {written("cut_early.mp4", early_bytes.substr(0, early_bytes.size() * 3 / 4)),
       {"expected a whole film, found one that"}},
      {written("cut.avi", stream.substr(0, stream.size() / 2)), {"expected a whole film, found one that"}},
      {written("cut.mkv", matroska.substr(0, matroska.size() / 2)), {"expected a whole film, found one that"}},
      {film("wide.mkv", {"-c:v", "ffv1", "-frames:v", "1"}, "9000x4200"), {"Picture size 9000x4200 exceeds"}}};
  for (const auto& [file, parts] : cases) {
    const std::string text = refusal(file);
    for (const auto& part : parts) EXPECT_HAS(text, part);
  }
}

TEST_F(Films, WithoutFfmpegTheErrorSaysWhatToDo) {
  const std::string file = film("a.mp4", {"-c:v", "mpeg4"});
  const std::string text = refusal([&] { (void)VideoFile(file, "rows.jsonl:3", {.search_path = "/nowhere:/none"}); });
  EXPECT_HAS(text,
             "a.mp4: expected ffprobe, which reads films, in one of the folders of PATH (/nowhere:/none), found none");
  EXPECT_HAS(text, "apt-get install ffmpeg, or give the film as its frames");
}

TEST_F(Films, AChildThatStandsStillIsEnded) {
  const std::string file = film("a.mp4", {"-c:v", "mpeg4"});
  const auto script = [&](const char* name, const std::string& body) {
    written(name, "#!/bin/sh\n" + body + "\n");
    fs::permissions(path(name), fs::perms::owner_all);
  };
  const VideoReading impatient{.search_path = folder_.string(), .patience = Milliseconds(500)};
  script("ffmpeg", "sleep 1000");
  script("ffprobe", "sleep 1000 & echo '{'; exec >&- 2>&-; wait");
  EXPECT_HAS(refusal([&] { (void)VideoFile(file, "row", impatient); }), "found nothing new for 0.5 s");
  script("ffprobe",
         R"(echo '{"streams": [{"codec_type": "video", "width": 64, "height": 48, "avg_frame_rate": "25/1"}]}')");
  std::optional<VideoFile> film;
  for (int attempt = 0; attempt < 100 && !film; ++attempt) {  // a busy machine may take longer than that to say it
    (void)refusal([&] { film.emplace(file, "row", impatient); });
  }
  ASSERT_TRUE(film);
  EXPECT_HAS(refusal([&] { (void)frames_of(*film, all_of); }), "found nothing new for 0.5 s, after frame 0");
  script("ffmpeg", "kill -SEGV $$");
  const VideoFile patient(file, "row", {.search_path = folder_.string()});
  EXPECT_HAS(refusal([&] { (void)frames_of(patient, all_of); }), "damaged after frame 0");
}

TEST_F(Films, SoundIsThatOfTheFileAtTheRateThatIsAsked) {
  const std::string wav = path("tone.wav");
  ffmpeg({"-f", "lavfi", "-i", "sine=440:sample_rate=44100", "-t", "1.5", "-ac", "2", wav});
  const Audio expected = load_audio(wav, "row", {.rate = 16000});
  const VideoFile heard = open(
      film("heard.mkv", {"-i", wav, "-t", "1.5", "-map", "0:v", "-map", "1:a", "-c:v", "mpeg4", "-c:a", "pcm_s16le"}));
  ASSERT_TRUE(heard.facts().sound);
  EXPECT_EQ(heard.facts().sound->channels, 2);
  EXPECT_EQ(heard.read_sound({.rate = 16000}).samples, expected.samples);
  EXPECT_HAS(refusal([&] { (void)heard.read_sound({.max_seconds = 1, .why = "no more is heard"}); }),
             "no more is heard");
  const VideoFile silent = open(film("silent.mp4", {"-c:v", "mpeg4"}));
  EXPECT_HAS(refusal([&] { (void)silent.read_sound(); }),
             "silent.mp4: expected a film with sound, found no track of sound");
}

TEST_F(Films, DamagedOnesAreReadOrRefusedAndNeverStandStill) {
  const Env env = Env::process();
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261123));
  const double scale = std::stod(env.text("LOCKSTEP_TEST_SCALE").value_or("1"));
  const int64_t runs = env.integer("LOCKSTEP_FUZZ_FILMS").value_or(std::llround(300 * scale));
  SCOPED_TRACE(fmt::format("LOCKSTEP_FUZZ_SEED={}", seed));
  std::vector<std::string> films;
  for (const std::string& file :
       {film("a.mp4", {"-c:v", "mpeg4"}), film("a.avi", {"-c:v", "mpeg4"}), film("a.gif", {"-r", "5"}),
        film("a.mkv", {"-c:v", "mpeg4", "-bf", "1"}), film("a.ts", {"-c:v", "mpeg2video"})})
    films.push_back(read_text(file));
  SplitMix64 random(seed);
  int64_t read = 0, refused = 0;
  for (int64_t run = 0; run < runs; ++run) {
    std::string bytes = films[static_cast<size_t>(random.below(static_cast<int64_t>(films.size())))];
    const auto size = static_cast<int64_t>(bytes.size());
    const int64_t head = random.below(2) == 0 ? std::min<int64_t>(size, 600) : size;  // headers are what misleads
    for (int64_t i = random.below(12); i >= 0; --i)
      bytes[static_cast<size_t>(random.below(head))] = static_cast<char>(random.next());
    if (random.below(4) == 0) bytes.resize(static_cast<size_t>(random.below(size)));
    const std::string file = written("mutated", bytes);
    const std::string text = refusal([&] {
      const VideoFile film = open(file);
      for (const Image& frame : frames_of(film, [](int64_t count) {
             return std::vector<int64_t>{0, count / 2, count - 1};
           }))
        EXPECT_EQ(frame.pixels.size(), static_cast<size_t>(3 * frame.width * frame.height));
    });
    ++(text == "no error" ? read : refused);
  }
  EXPECT_EQ(read + refused, runs);
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace lockstep
