#include "lockstep/data/video.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/data/encode_wav.h"
#include "lockstep/data/image_codecs.h"
#include "lockstep/data/media_bytes.h"
#include "lockstep/data/video_child.h"

namespace lockstep {
namespace {

constexpr const char* kFormats = "mov,matroska,webm,avi,gif,mpegts,mpeg,flv,asf,ogg";
constexpr off_t kMaxFile = off_t{64} << 30;
constexpr const char* kCutHint = "fetch or write it anew, or leave the row out";

/// Bytes of a row as a file without a name.
Descriptor in_memory(const MediaBytes& media) {
  Descriptor file(::memfd_create("lockstep-video", MFD_CLOEXEC));
  for (std::string_view rest = media.bytes; file.is_open() && !rest.empty();) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) break;
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
    if (rest.empty()) return file;
  }
  throw data_error(fmt::format("{}: expected a film, found no bytes, or no memory for them", media.name));
}

Descriptor opened(const std::string& path, const std::string& name) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) throw data_error(fmt::format("{}: {}", name, std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw data_error(fmt::format("{}: expected a file, found none that can be read from any place", name));
  if (status.st_size > kMaxFile) {
    throw data_error(fmt::format("{}: expected at most {} bytes, found {}", name, kMaxFile, status.st_size),
                     "cut it into clips, a row each");
  }
  return file;
}

std::string first_bytes(const Descriptor& file) {
  std::string bytes(64, '\0');
  const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

std::string described(const Descriptor& file) {
  return describe_bytes(first_bytes(file), ::lseek(file.get(), 0, SEEK_END));
}

std::string program_of(const VideoReading& reading, const char* program, const std::string& name) {
  std::string path = program_on(reading.search_path, program);
  if (!path.empty()) return path;
  throw data_error(fmt::format("{}: expected {}, which reads films, in one of the folders of PATH ({}), found none",
                               name, program, reading.search_path),
                   "apt-get install ffmpeg, or give the film as its frames: \"videos\": [[\"frame0.png\", …]]");
}

/// FFmpeg's test for these frames, in groups: its parser nests as deep as a sum is long.
std::string selection(const std::vector<int64_t>& frames) {
  constexpr size_t kGroup = 64;
  std::string text;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i % kGroup == 0) text += i == 0 ? "(" : ")+(";
    text += fmt::format("{}eq(n,{})", i % kGroup == 0 ? "" : "+", frames[i]);
  }
  return text + ")";
}

/// Frames out of the bytes of a pipe, each given to the places where it was chosen.
class FrameSink {
 public:
  FrameSink(const std::vector<int64_t>& chosen, const VideoFacts& facts, const VideoFile::Take& take)
      : chosen_(chosen), facts_(facts), take_(take), bytes_(static_cast<size_t>(3 * facts.width * facts.height)) {}

  void add(std::span<const char> more) {
    while (!more.empty()) {
      check(next_ < chosen_.size(), "ffmpeg gives no more frames than were chosen");
      if (frame_.empty()) frame_.reserve(bytes_);
      const size_t some = std::min(more.size(), bytes_ - frame_.size());
      frame_.insert(frame_.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(some));
      more = more.subspan(some);
      if (frame_.size() == bytes_) give();
    }
  }
  bool complete() const { return next_ == chosen_.size() && frame_.empty(); }

 private:
  void give() {
    Image image{.width = facts_.width, .height = facts_.height, .pixels = std::exchange(frame_, {})};
    const int64_t here = chosen_[next_];
    for (; next_ + 1 < chosen_.size() && chosen_[next_ + 1] == here; ++next_) take_(next_, image);
    take_(next_, std::move(image));
    ++next_;
  }

  const std::vector<int64_t>& chosen_;
  const VideoFacts& facts_;
  const VideoFile::Take& take_;
  size_t bytes_, next_ = 0;
  std::vector<uint8_t> frame_;
};

/// What FFmpeg says of a file that ends too soon, and then goes on as if it were whole.
bool tells_of_cut(std::string_view said) {
  constexpr std::array kWords = {"ended prematurely", "partial file", "Truncating packet", "truncated"};
  return std::ranges::any_of(kWords, [&](const char* words) { return said.find(words) != std::string_view::npos; });
}

}  // namespace

VideoFile::VideoFile(const std::string& reference, const std::string& where, VideoReading reading)
    : reading_(std::move(reading)) {
  if (reference.starts_with("data:")) {
    const MediaBytes media = media_bytes(reference, "video", where, 0);
    name_ = media.name;
    file_ = in_memory(media);
  } else {
    name_ = check_media_file(reference, "video", where);
    file_ = opened(reference, name_);
  }
  const std::string begin = first_bytes(file_);
  if (begin.empty()) throw data_error(fmt::format("{}: expected a film, found an empty file", name_));
  if (is_picture(begin)) {
    throw data_error(fmt::format("{}: expected a film, found {}", name_, describe_bytes(begin)),
                     "a film of pictures is a list: \"videos\": [[\"frame0.png\", …]]; a single picture is an image");
  }
  facts_ = video_facts(probe(), name_);
}

/// Up to the input: local bytes alone, in formats that name no other files.
std::vector<std::string> VideoFile::input_words(const char* program) const {
  std::vector<std::string> words = {program_of(reading_, program, name_)};
  words.insert(words.end(), {"-v", "error", "-protocol_whitelist", "file", "-format_whitelist", kFormats, "-max_pixels",
                             std::to_string(kMaxVideoPixels)});
  return words;
}

std::string VideoFile::probe() const {
  constexpr size_t kMost = size_t{1} << 20;
  std::vector<std::string> words = input_words("ffprobe");
  words.insert(words.end(),
               {"-of", "json", "-show_entries",
                "format=duration:stream=index,codec_type,width,height,avg_frame_rate,r_frame_rate,nb_frames,duration,"
                "sample_rate,channels:stream_disposition=attached_pic,default:stream_tags=rotate,DURATION:"
                "stream_side_data=rotation",
                "-i", kVideoInput});
  std::string json;
  const VideoRunResult result = run_over_video(
      {.argv = words,
       .film = file_.get(),
       .name = name_,
       .take =
           [&](std::span<const char> bytes) {
             json.append(bytes.data(), bytes.size());
             if (json.size() > kMost)
               throw data_error(fmt::format("{}: expected a film of some tracks, found thousands", name_));
           },
       .patience = reading_.patience});
  if (result.status.shell_code() == 0) return json;
  throw data_error(
      fmt::format("{}: expected a film that FFmpeg reads (MP4, MOV, MKV, WebM, AVI, GIF, MPEG, FLV, ASF, Ogg), "
                  "found {}; ffprobe says: {}",
                  name_, described(file_), result.said.empty() ? "nothing" : result.said),
      kCutHint);
}

UserError VideoFile::damaged(const std::string& said, int64_t frames) const {
  return data_error(
      fmt::format("{}: expected a whole film, found one that is cut short or damaged after frame {}; ffmpeg "
                  "says: {}",
                  name_, frames, said.empty() ? "nothing" : said),
      kCutHint);
}

int64_t VideoFile::decode(const std::vector<int64_t>& chosen, const Take& take) const {
  std::vector<int64_t> different = chosen;
  different.erase(std::unique(different.begin(), different.end()), different.end());
  if (different.size() > kMaxChosenFrames) {
    throw data_error(fmt::format("{}: expected at most {} frames of a film, found {} wanted", name_, kMaxChosenFrames,
                                 different.size()),
                     "take fewer a second (FPS), or set FPS_MAX_FRAMES");
  }
  FrameSink sink(chosen, facts_, take);
  const auto run = [&](const char* passthrough) {
    std::vector<std::string> words = input_words("ffmpeg");
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    // Twice decoded frames cost nothing: the first output counts them all, the second has those that were chosen.
    add({"-nostdin", "-nostats", "-progress", "pipe:2", "-xerror", "-threads", "2", "-i", kVideoInput});
    add({"-map", "0:V:0", passthrough, "passthrough", "-f", "null", "-"});
    if (!different.empty()) {
      add({"-map", "0:V:0", passthrough, "passthrough", "-vf",
           fmt::format("select='{}',scale={}:{}:flags=bilinear,format=rgb24", selection(different), facts_.width,
                       facts_.height),
           "-f", "rawvideo", "pipe:1"});
    }
    return run_over_video(
        {.argv = words,
         .film = file_.get(),
         .name = name_,
         .take = [&](std::span<const char> bytes) { sink.add(bytes); },
         .progress =
             [&](int64_t frames) {
               if (frames > kMaxVideoFrames)
                 throw data_error(fmt::format("{}: expected at most {} frames, found more", name_, kMaxVideoFrames));
             },
         .patience = reading_.patience});
  };
  VideoRunResult result = run("-fps_mode");
  if (result.said.find("'fps_mode'") != std::string::npos) result = run("-vsync");  // FFmpeg before 5.1
  if (result.status.shell_code() != 0 || tells_of_cut(result.said)) throw damaged(result.said, result.frames);
  if (result.frames == 0)
    throw data_error(fmt::format("{}: expected a film with frames, found none in it", name_), kCutHint);
  return chosen.empty() || sink.complete() || result.frames <= chosen.back() ? result.frames : -1;
}

void VideoFile::read_frames(const Choose& choose, const Take& take) const {
  int64_t expected = facts_.frames;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::vector<int64_t> chosen;
    bool refused = expected == 0;
    try {
      if (expected > 0) chosen = choose(expected);
    } catch (const UserError&) {
      if (attempt > 0) throw;  // of the true number; a header's may be wrong
      refused = true;
    }
    check(std::ranges::is_sorted(chosen) && (chosen.empty() || (chosen.front() >= 0 && chosen.back() < expected)),
          "chosen frames rise and are the film's");
    const int64_t found = decode(chosen, take);
    if (found == expected && !refused) return;
    expected = found;
    if (found < 0) break;
  }
  throw data_error(
      fmt::format("{}: expected the same frames each time it is decoded, found other numbers of them", name_),
      kCutHint);
}

Audio VideoFile::read_sound(const AudioLimits& limits) const {
  if (!facts_.sound) {
    throw data_error(fmt::format("{}: expected a film with sound, found no track of sound in it", name_),
                     "leave USE_AUDIO_IN_VIDEO out, or take such rows out of the data");
  }
  const VideoFacts::Sound& sound = *facts_.sound;
  constexpr size_t kMost = size_t{1} << 30;
  if (sound.channels < 1 || sound.channels > kMaxAudioChannels || sound.rate < kMinAudioRate ||
      sound.rate > kMaxAudioRate) {
    throw data_error(
        fmt::format("{}: expected sound of 1 to {} channels and {} to {} samples a second, found {} and {}", name_,
                    kMaxAudioChannels, kMinAudioRate, kMaxAudioRate, sound.channels, sound.rate));
  }
  std::vector<std::string> words = input_words("ffmpeg");
  words.insert(words.end(), {"-nostdin", "-nostats", "-xerror", "-i", kVideoInput, "-map",
                             fmt::format("0:{}", sound.stream), "-ar", std::to_string(sound.rate), "-ac",
                             std::to_string(sound.channels), "-c:a", "pcm_s16le", "-f", "s16le", "pipe:1"});
  std::string samples;
  const auto take = [&](std::span<const char> bytes) {
    samples.append(bytes.data(), bytes.size());
    if (samples.size() > kMost)
      throw data_error(fmt::format("{}: expected at most {} bytes of sound, found more", name_, kMost));
  };
  const VideoRunResult result =
      run_over_video({.argv = words, .film = file_.get(), .name = name_, .take = take, .patience = reading_.patience});
  if (result.status.shell_code() != 0 || tells_of_cut(result.said)) throw damaged(result.said, facts_.frames);
  if (samples.empty())
    throw data_error(fmt::format("{}: expected a film with sound, found a track without samples", name_));
  return decode_audio(encode_wav(samples, sound.rate, sound.channels), name_, limits);
}

}  // namespace lockstep
