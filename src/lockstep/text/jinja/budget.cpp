#include "lockstep/text/jinja/budget.h"

#include <utility>

#include <fmt/format.h>

namespace lockstep::jinja {
namespace {

thread_local Budget* current_budget = nullptr;

}  // namespace

Budget::Budget(size_t input_bytes)
    : outer_(std::exchange(current_budget, this)),
      most_steps_(kMaxSteps + input_bytes),
      most_bytes_(kMaxBytes + kBytesPerInput * input_bytes) {}

Budget::~Budget() {
  for (const auto& space : spaces_) {
    // Moved out first: what an attribute destroys may be the last owner of nothing that this vector holds.
    const Dict attributes = std::exchange(space->attributes, {});
  }
  current_budget = outer_;
}

Budget* Budget::current() { return current_budget; }

void Budget::step(size_t count) {
  steps_ += count;
  if (steps_ > most_steps_)
    throw LimitError(fmt::format("the template takes more than {} steps: a loop in a loop?", most_steps_));
}

void Budget::make(size_t bytes) {
  if (bytes > most_bytes_ - bytes_) {
    bytes_ = most_bytes_;
    throw LimitError(fmt::format("the template makes more than {} MiB of text and lists", most_bytes_ >> 20));
  }
  bytes_ += bytes;
}

void Budget::enter() {
  step(1);
  if (++calls_ <= kMaxCalls) return;
  --calls_;  // no Deeper is made that would leave again
  throw LimitError(fmt::format(
      "RecursionError: the template nests more than {} evaluations: a macro that calls itself?", kMaxCalls));
}

void spend_steps(size_t count) {
  if (current_budget != nullptr) current_budget->step(count);
}

void spend_bytes(size_t bytes) {
  if (current_budget != nullptr) current_budget->make(bytes);
}

void spend_search(std::string_view text, std::string_view needle) {
  const double worst = static_cast<double>(text.size()) * static_cast<double>(needle.size());
  spend_steps(1 + text.size() / 256 + static_cast<size_t>(worst / 4096));
}

}  // namespace lockstep::jinja
