#include "lockstep/base/error.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// Whatever a file of strangers put into it, a message fits a screen and does nothing to it.
std::string readable(const std::string& message) {
  constexpr size_t kMaxMessage = 3000;
  return cut_text(shown_text(message), kMaxMessage);
}

}  // namespace

Error::Error(ExitCode code, std::string message, std::string hint)
    : code_(code), message_(std::move(message)), hint_(std::move(hint)) {
  render();
}

const char* Error::what() const noexcept { return text_.c_str(); }
ExitCode Error::code() const noexcept { return code_; }
const std::string& Error::message() const noexcept { return message_; }
const std::string& Error::hint() const noexcept { return hint_; }
const std::vector<std::string>& Error::frames() const noexcept { return frames_; }

void Error::add_frame(std::string frame) {
  frames_.push_back(std::move(frame));
  render();
}

void Error::render() {
  text_.clear();
  for (auto it = frames_.rbegin(); it != frames_.rend(); ++it) text_ += *it + ": ";
  text_ += message_;
  if (!hint_.empty()) text_ += "; hint: " + hint_;
}

InternalError::InternalError(std::string message, std::source_location where)
    : Error(ExitCode::kInternal,
            std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " + std::move(message),
            "this is a bug in lockstep; please report it with the command line") {}

UserError usage_error(std::string message, std::string hint) {
  return {ExitCode::kUsage, readable(message), readable(hint)};
}

UserError data_error(std::string message, std::string hint) {
  return {ExitCode::kData, readable(message), readable(hint)};
}

UserError checkpoint_error(std::string message, std::string hint) {
  return {ExitCode::kCheckpoint, readable(message), readable(hint)};
}

void check(bool ok, std::string_view message, std::source_location where) {
  if (!ok) throw InternalError(std::string(message), where);
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // Two slips in a word of three letters leave nothing to recognise it by.
  size_t best_distance = (word.size() <= 3 ? 1 : std::max<size_t>(2, word.size() / 3)) + 1;
  for (const auto& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substituted = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
