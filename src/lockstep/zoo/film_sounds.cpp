#include "lockstep/zoo/film_sounds.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// A mark of a message. `number`: of its medium among those of its kind in the row.
struct Mark {
  Modality kind;
  size_t message, at, number;

  size_t end() const { return at + media_mark(kind).size(); }
};

/// Films and clips as they stand in the messages.
std::vector<Mark> marks_of(const Sample& sample) {
  std::vector<Mark> marks;
  size_t films = 0, clips = 0;
  for (size_t m = 0; m < sample.messages.size(); ++m) {
    const std::string& text = sample.messages[m].content;
    for (size_t begin = 0;;) {
      const size_t film = text.find(media_mark(Modality::kVideo), begin);
      const size_t clip = text.find(media_mark(Modality::kAudio), begin);
      if (film == clip) break;  // neither
      const bool sees = film < clip;
      marks.push_back({sees ? Modality::kVideo : Modality::kAudio, m, std::min(film, clip), (sees ? films : clips)++});
      begin = marks.back().end();
    }
  }
  return marks;
}

/// Nothing but line breaks between two marks of one message.
bool touch(const Sample& sample, const Mark& first, const Mark& second) {
  if (first.message != second.message) return false;
  const std::string_view text = sample.messages[first.message].content;
  return text.substr(first.end(), second.at - first.end()).find_first_not_of("\r\n") == std::string_view::npos;
}

/// A clip that goes with a film: its mark, by number in the row, and what goes from the text with it.
struct Taken {
  size_t clip, begin, size;
};

}  // namespace

Sample with_film_sounds(const Sample& sample) {
  if (sample.videos.empty()) return sample;
  const std::vector<Mark> marks = marks_of(sample);
  Sample out = sample;
  std::vector<Taken> taken;
  const auto takes = [&](size_t film, size_t clip) {
    if (clip >= marks.size() || marks[clip].kind != Modality::kAudio || marks[clip].number >= sample.audios.size())
      return false;
    if (std::ranges::find(taken, clip, &Taken::clip) != taken.end()) return false;
    const Mark &first = marks[std::min(film, clip)], &second = marks[std::max(film, clip)];
    if (!touch(sample, first, second)) return false;
    out.videos[marks[film].number].sound = sample.audios[marks[clip].number];
    const size_t begin = clip < film ? first.at : first.end(), end = clip < film ? second.at : second.end();
    taken.push_back({clip, begin, end - begin});
    return true;
  };
  for (size_t i = 0; i < marks.size(); ++i) {
    const Mark& film = marks[i];
    if (film.kind != Modality::kVideo || film.number >= out.videos.size()) continue;  // too many marks: refused later
    const Video& video = out.videos[film.number];
    if (!video.file.empty() || !video.sound.empty() || (i > 0 && takes(i, i - 1)) || takes(i, i + 1)) continue;
    throw data_error(
        fmt::format(
            "{}: expected the sound of video {} of {} (USE_AUDIO_IN_VIDEO is set), found no <audio> beside its mark",
            sample.where, film.number + 1, sample.videos.size()),
        "write <audio><video> and name the sound in \"audios\", or unset USE_AUDIO_IN_VIDEO");
  }
  std::ranges::sort(taken, std::greater{}, &Taken::clip);
  for (const Taken& one : taken) {
    const Mark& mark = marks[one.clip];
    out.messages[mark.message].content.erase(one.begin, one.size);
    out.audios.erase(out.audios.begin() + static_cast<int64_t>(mark.number));
  }
  return out;
}

}  // namespace lockstep
