#include "lockstep/text/limits.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

void refuse_more_steps(size_t steps, const std::string& where) {
  if (steps < kMaxTextSteps) return;
  throw checkpoint_error(fmt::format("{}: expected at most {} steps, found more", where, kMaxTextSteps));
}

const std::string& short_literal(const std::string& literal, const std::string& key, const std::string& where) {
  if (literal.size() <= kMaxLiteral) return literal;
  throw checkpoint_error(
      fmt::format("{}: \"{}\": expected at most {} bytes, found {}", where, key, kMaxLiteral, literal.size()));
}

void refuse_growth(size_t bytes, size_t from) {
  if (bytes <= kFreeGrowth + kMaxGrowth * from) return;
  throw checkpoint_error(
      fmt::format("the steps of tokenizer.json (or of tokenizer.model) make more than {} bytes of a text of {}",
                  kFreeGrowth + kMaxGrowth * from, from),
      "take the tokenizer of the model's maker");
}

}  // namespace lockstep
