#include "lockstep/session/row_pieces.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/sample.h"
#include "lockstep/session/shared_rows.h"

namespace lockstep {
namespace {

/// The last place up to `end` where a text is parted well.
uint64_t parted_before(std::string_view text, uint64_t begin, uint64_t end) {
  constexpr uint64_t kNear = 256;
  if (end >= text.size()) return text.size();
  for (uint64_t at = end; at > begin && end - at < kNear; --at) {
    if (text[at] == ' ' || text[at] == '\n') return at;
  }
  while (end > begin && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;  // inside a character
  return end;
}

uint64_t behind_character(std::string_view text, uint64_t at) {
  do {
    ++at;
  } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80);
  return at;
}

/// A text, or a question and its answer, of which every token is learnt alike.
bool is_text(const Sample& sample, const SplitOptions& options) {
  if (!options.plain || sample.messages.empty() || !describe_media(sample).empty() || !sample.objects.empty() ||
      !sample.tools.empty())
    return false;
  const auto is = [&](size_t i, const char* role) { return sample.messages[i].role == role; };
  return sample.messages.size() == 1 ||
         (options.all && sample.messages.size() == 2 && is(0, "user") && is(1, "assistant"));
}

std::vector<uint64_t> ends_of_tokens(size_t size, int64_t most) {
  std::vector<uint64_t> ends;
  for (uint64_t end = 0; end < size;) ends.push_back(end = std::min<uint64_t>(size, end + static_cast<uint64_t>(most)));
  return ends;
}

/// Of messages behind one another, each of which is encoded for itself; with room for what stands around a text.
std::vector<uint64_t> ends_of_text(const Sample& sample, const Tokenizer& tokenizer, int64_t most) {
  const int64_t room = std::max<int64_t>(1, most - std::ssize(tokenizer.frame().before) - 1);
  std::string text;
  std::vector<uint64_t> ends;  // of messages
  for (const Message& message : sample.messages) ends.push_back((text += message.content).size());
  return piece_ends(text, room, [&](uint64_t begin, uint64_t end) {
    int64_t tokens = 0;
    for (const uint64_t parted : ends) {
      const uint64_t here = std::min(parted, end);
      if (here <= begin) continue;
      tokens +=
          std::ssize(tokenizer.encode(std::string_view(text).substr(begin, here - begin), {.continues = begin > 0}));
      begin = here;
    }
    return tokens;
  });
}

int64_t bytes_of_text(const Sample& sample) {
  int64_t bytes = 0;
  for (const Message& message : sample.messages) bytes += std::ssize(message.content);
  return bytes;
}

/// Of a row that is not cut: what stands for media, marks of boxes and a template is not seen in its texts.
bool may_be_long(const Sample& sample, const SplitOptions& options, int64_t most) {
  if (sample.messages.empty()) return false;  // it cannot be read
  const bool as_it_stands = options.plain && describe_media(sample).empty() && sample.objects.empty();
  return !as_it_stands || bytes_of_text(sample) > most;
}

/// As a piece of a row that is neither ids nor text alone: it ends before it begins.
constexpr uint64_t kUncut = 1;

}  // namespace

std::vector<uint64_t> piece_ends(std::string_view text, int64_t most,
                                 const std::function<int64_t(uint64_t begin, uint64_t end)>& tokens_of) {
  constexpr double kFull = 0.97, kFullEnough = 0.9;
  constexpr int kTries = 4;
  std::vector<uint64_t> ends;
  double bytes_a_token = 3;
  for (uint64_t begin = 0; begin < text.size(); begin = ends.back()) {
    uint64_t best = begin;
    double length = kFull * static_cast<double>(most) * bytes_a_token;
    for (int tries = 0; tries < kTries || best == begin; ++tries) {
      uint64_t end = parted_before(text, begin, begin + std::max<uint64_t>(1, static_cast<uint64_t>(length)));
      const bool one = end <= behind_character(text, begin);
      if (one) end = behind_character(text, begin);
      const auto tokens = static_cast<double>(std::max<int64_t>(1, tokens_of(begin, end)));
      const bool fits = tokens <= static_cast<double>(most);
      if (fits || one) best = std::max(best, end);
      bytes_a_token = static_cast<double>(end - begin) / tokens;
      if (one || (fits && (end == text.size() || tokens >= kFullEnough * static_cast<double>(most)))) break;
      length = kFull * static_cast<double>(end - begin) * static_cast<double>(most) / tokens;
    }
    ends.push_back(best);
  }
  return ends;
}

int64_t SplitOptions::most() const {
  int64_t tokens = max_length > 0 ? max_length : positions;
  if (bin > 0) tokens = tokens > 0 ? std::min(tokens, bin) : bin;
  if (tokens > 0) return tokens;
  throw usage_error("--truncation_strategy split: the model does not say how many positions it has",
                    "--max_length 4096");
}

std::vector<std::string> SplitRows::notices() const {
  std::vector<std::string> out;
  if (rows.size() != before) {
    out.push_back(
        fmt::format("{} rows are {} of at most {} tokens: longer texts were cut (--truncation_strategy split)", before,
                    rows.size(), most));
  }
  if (uncut > 0) {
    out.push_back(fmt::format(
        "{} of {} rows are not text alone (media, conversations, answers that alone are learnt) and not cut "
        "into several: those of more than {} tokens lose their end, as by --truncation_strategy right",
        uncut, before, most));
  }
  return out;
}

SplitRows split_long_rows(Job& job, const Dataset& data, const Tokenizer& tokenizer, const SplitOptions& options,
                          const EventBus& events) {
  const int64_t most = options.most();
  const auto of_row = [&](int64_t row) {
    std::vector<uint64_t> ends;
    bool uncut = false;
    const Sample sample = data.sample_or_name(row);  // one that cannot be read is told where it is read for training
    if (!sample.input_ids.empty()) {
      ends = ends_of_tokens(sample.input_ids.size(), most);
    } else if (!is_text(sample, options)) {
      uncut = may_be_long(sample, options, most);
    } else if (bytes_of_text(sample) > most) {  // a token is a byte at least
      try {
        ends = ends_of_text(sample, tokenizer, most);
      } catch (const UserError& error) {  // as above
        if (error.code() != ExitCode::kData) throw;
      }
    }
    std::vector<RowPiece> pieces;
    for (uint64_t begin = 0; ends.size() > 1 && pieces.size() < ends.size(); begin = pieces.back().end)
      pieces.push_back({.row = row, .begin = begin, .end = ends[pieces.size()]});
    if (pieces.empty()) pieces.push_back({.row = row, .begin = uncut ? kUncut : 0});
    return std::string(reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(RowPiece));
  };
  const std::string bytes = of_all_rows(
      job, {.data = data, .threads = options.threads, .what = "splitting rows", .phase = "split rows"}, events, of_row);
  std::vector<RowPiece> pieces(bytes.size() / sizeof(RowPiece));
  std::memcpy(pieces.data(), bytes.data(), bytes.size());
  int64_t uncut = 0;
  for (RowPiece& piece : pieces) {
    if (piece.end > 0 || piece.begin != kUncut) continue;
    piece.begin = 0;
    ++uncut;
  }
  return {.rows = Dataset::in_pieces(data, std::move(pieces)), .before = data.size(), .most = most, .uncut = uncut};
}

}  // namespace lockstep
