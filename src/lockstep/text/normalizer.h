// The `normalizer` of a tokenizer.json: NFC/NFD/NFKC/NFKD, Prepend, Replace, Strip, Sequence.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

class Normalizer {
 public:
  struct Step;
  /// `config` may be null (nothing to do). Throws UserError(kCheckpoint) naming `where` and the type.
  Normalizer(const Json& config, const std::string& where);
  ~Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;

  bool empty() const { return steps_.empty(); }
  /// `prepends` false leaves out every Prepend, for a text that continues another.
  std::string apply(std::string text, bool prepends = true) const;

 private:
  std::vector<std::unique_ptr<Step>> steps_;
};

/// Every `literal` in the text replaced, left to right.
std::string replace_all(std::string_view text, std::string_view literal, std::string_view replacement);

}  // namespace lockstep
