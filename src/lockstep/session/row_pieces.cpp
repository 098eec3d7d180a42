#include "lockstep/session/row_pieces.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

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

bool is_plain_text(const Sample& sample) {
  return sample.messages.size() == 1 && describe_media(sample).empty() && sample.objects.empty() &&
         sample.tools.empty();
}

std::vector<uint64_t> ends_of_tokens(size_t size, int64_t most) {
  std::vector<uint64_t> ends;
  for (uint64_t end = 0; end < size;) ends.push_back(end = std::min<uint64_t>(size, end + static_cast<uint64_t>(most)));
  return ends;
}

/// With room for what stands around a text.
std::vector<uint64_t> ends_of_text(std::string_view text, const Tokenizer& tokenizer, int64_t most) {
  const int64_t room = std::max<int64_t>(1, most - std::ssize(tokenizer.frame().before) - 1);
  return piece_ends(text, room, [&](uint64_t begin, uint64_t end) {
    return std::ssize(tokenizer.encode(text.substr(begin, end - begin), {.continues = begin > 0}));
  });
}

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

Dataset split_long_rows(Job& job, const Dataset& data, const Tokenizer& tokenizer, const SplitOptions& options,
                        const EventBus& events) {
  const int64_t most = options.most;
  const auto of_row = [&](int64_t row) {
    std::vector<uint64_t> ends;
    const Sample sample = data.sample_or_name(row);  // one that cannot be read is told where it is read for training
    if (!sample.input_ids.empty()) {
      ends = ends_of_tokens(sample.input_ids.size(), most);
    } else if (options.plain && is_plain_text(sample) &&
               std::ssize(sample.messages[0].content) > most) {  // a token is a byte at least
      ends = ends_of_text(sample.messages[0].content, tokenizer, most);
    }
    std::vector<RowPiece> pieces;
    for (uint64_t begin = 0; ends.size() > 1 && pieces.size() < ends.size(); begin = pieces.back().end)
      pieces.push_back({.row = row, .begin = begin, .end = ends[pieces.size()]});
    if (pieces.empty()) pieces.push_back({.row = row});
    return std::string(reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(RowPiece));
  };
  const std::string bytes = of_all_rows(
      job, {.data = data, .threads = options.threads, .what = "splitting rows", .phase = "split rows"}, events, of_row);
  std::vector<RowPiece> pieces(bytes.size() / sizeof(RowPiece));
  std::memcpy(pieces.data(), bytes.data(), bytes.size());
  return Dataset::in_pieces(data, std::move(pieces));
}

}  // namespace lockstep
