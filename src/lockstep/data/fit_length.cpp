#include "lockstep/data/fit_length.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// A question and its answer: tokens that are no placeholder, behind one another.
struct Turn {
  std::vector<size_t> question, answer;
};

std::vector<Turn> turns_of(const TokenRow& row, const std::vector<int>& filled) {
  std::vector<Turn> turns;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (filled[i] >= 0) continue;
    const bool learnt = row.labels[i] != kNotLearnt;
    if (turns.empty() || (!learnt && !turns.back().answer.empty())) turns.emplace_back();
    (learnt ? turns.back().answer : turns.back().question).push_back(i);
  }
  return turns;
}

/// How many tokens of an answer stay where a turn has `room`: all, where the question or the answer takes less than half.
size_t answer_that_stays(size_t question, size_t answer, size_t room) {
  if (answer * 2 < room) return answer;
  if (question * 2 < room) return std::min(answer, room - question);
  return std::min(answer, room * answer / (question + answer));
}

/// Each turn is shortened in proportion, the last where there is no room for it. Of a row that learns its last answer alone the
/// last comes first. Where its history is not told apart, that is one question, whose beginning goes.
/// Source: LLaMA-Factory 0.9.5, data/processor/processor_utils.py infer_seqlen and data/processor/supervised.py.
std::vector<bool> kept_by_turns(const TokenRow& row, const std::vector<int>& filled, size_t room,
                                const Taught& taught) {
  std::vector<bool> kept(row.ids.size(), false);
  std::vector<Turn> turns = turns_of(row, filled);
  if (row.history) std::ranges::reverse(turns);
  for (const Turn& turn : turns) {
    const size_t answer = answer_that_stays(turn.question.size(), turn.answer.size(), room);
    const size_t question = std::min(turn.question.size(), room - answer);
    const bool one_question = taught.of_the_end() && !row.history;
    const size_t skipped = one_question ? turn.question.size() - question : 0;
    for (size_t i = 0; i < question; ++i) kept[turn.question[skipped + i]] = true;
    for (size_t i = 0; i < answer; ++i) kept[turn.answer[i]] = true;
    room -= question + answer;
  }
  return kept;
}

/// One stretch of the text goes: its end, or its beginning.
std::vector<bool> kept_at_one_end(const TokenRow& row, const std::vector<int>& filled, int64_t room, int64_t skipped) {
  std::vector<bool> kept(row.ids.size(), false);
  int64_t seen = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (filled[i] < 0) kept[i] = seen++ >= skipped && room-- > 0;
  }
  return kept;
}

/// By token, placeholders apart, whether it stays; nullopt: all do.
std::optional<std::vector<bool>> kept_of(const TokenRow& row, const std::vector<int>& filled,
                                         const ProcessOptions& options, const std::string& where) {
  const auto length = static_cast<int64_t>(row.ids.size());
  const int64_t most = options.most_tokens();
  if (most <= 0 || length <= most) return std::nullopt;
  if (options.truncation == Truncation::kDelete) {
    throw data_error(fmt::format("{}: row is {} tokens, {}", where, length, options.limit_text()),
                     fmt::format("{}let --truncation_strategy right, left or turns cut such rows",
                                 options.max_length > 0 ? "raise --max_length, or " : ""));
  }
  const int64_t media = count_places(row.media);
  if (media > most) {
    throw data_error(fmt::format("{}: the media alone are {} tokens, {}", where, media, options.limit_text()),
                     "raise --max_length: placeholders of media are never cut");
  }
  const int64_t room = most - media;  // for what is not a placeholder
  return options.truncation == Truncation::kTurns
             ? kept_by_turns(row, filled, static_cast<size_t>(room), options.taught)
             : kept_at_one_end(row, filled, room, options.truncation == Truncation::kLeft ? length - media - room : 0);
}

}  // namespace

void fit_length(TokenRow& row, const ProcessOptions& options, const std::string& where) {
  const std::vector<int> filled = filled_by(row.media, row.ids.size());
  const std::optional<std::vector<bool>> kept = kept_of(row, filled, options, where);
  std::fill_n(row.labels.begin(), row.history.value_or(0), kNotLearnt);
  if (!row.all.empty()) row.labels = std::move(row.all);
  if (!kept) return;
  for (MediaBlock& block : row.media) block.places.clear();
  size_t out = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (filled[i] >= 0) {
      row.media[static_cast<size_t>(filled[i])].places.push_back(static_cast<int32_t>(out));
    } else if (!(*kept)[i]) {
      continue;
    }
    row.ids[out] = row.ids[i];
    if (!row.weights.empty()) row.weights[out] = row.weights[i];
    row.labels[out++] = row.labels[i];
  }
  row.ids.resize(out);
  row.labels.resize(out);
  if (!row.weights.empty()) row.weights.resize(out);
}

}  // namespace lockstep
