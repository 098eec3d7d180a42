#include "lockstep/data/row_piece.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// A row without its texts and ids, so that a piece copies its own alone.
struct Kept {
  WholeRow which;
  Sample rest;
  std::vector<std::string> texts;  // by message
  std::vector<int32_t> input_ids, labels;
};

bool is_same(const WholeRow& a, const WholeRow& b) {
  return a.row == b.row && !a.data.expired() && !a.data.owner_before(b.data) && !b.data.owner_before(a.data);
}

Kept kept_of(const WholeRow& which, Sample sample) {
  Kept kept{.which = which, .rest = {}, .texts = {}, .input_ids = {}, .labels = {}};
  kept.input_ids = std::exchange(sample.input_ids, {});
  kept.labels = std::exchange(sample.labels, {});
  for (Message& message : sample.messages) kept.texts.push_back(std::exchange(message.content, {}));
  kept.rest = std::move(sample);
  return kept;
}

}  // namespace

Sample piece_of(const RowPiece& piece, const WholeRow& which, const std::function<Sample()>& read) {
  if (piece.end == 0) return read();
  static thread_local Kept kept;
  if (!is_same(kept.which, which)) kept = kept_of(which, read());
  Sample out = kept.rest;
  out.continues = piece.begin > 0;
  const auto cut = [](const auto& whole, uint64_t begin, uint64_t end, auto& to) {
    to.assign(whole.begin() + static_cast<std::ptrdiff_t>(begin), whole.begin() + static_cast<std::ptrdiff_t>(end));
  };
  if (!kept.input_ids.empty()) {
    out.goes_on = piece.end < kept.input_ids.size();
    cut(kept.labels, piece.begin, piece.end, out.labels);
    cut(kept.input_ids, piece.begin, piece.end, out.input_ids);
    return out;
  }
  uint64_t from = 0;  // of the message at hand
  std::vector<Message> messages;
  for (size_t i = 0; i < kept.texts.size(); ++i) {
    const uint64_t to = from + kept.texts[i].size();
    const uint64_t begin = std::max(from, piece.begin), end = std::min(to, piece.end);
    if (begin < end) cut(kept.texts[i], begin - from, end - from, messages.emplace_back(out.messages[i]).content);
    from = to;
  }
  out.goes_on = piece.end < from;
  out.messages = std::move(messages);
  return out;
}

}  // namespace lockstep
