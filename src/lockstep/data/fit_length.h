// A row that is longer than --max_length: refused, or cut where it may be cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/processor.h"

namespace lockstep {

/// Tokens of a row with their labels, and the media that have places among them.
struct TokenRow {
  std::vector<int32_t> ids, labels;
  std::vector<MediaBlock> media;
  std::vector<float> weights = {};  // of labels; empty: all count alike
  /// Tokens at the beginning whose labels only tell the turns apart, and are not learnt; nullopt: labels are what is learnt.
  std::optional<size_t> history = {};
  /// Labels of a row of which all is learnt but media and what stands around them: `labels` only tell questions from answers
  /// then. Empty: they are what is learnt.
  std::vector<int32_t> all = {};
};

/// Cuts ids and labels alike; placeholders stay, and the media's places follow them. Throws UserError(kData) naming `where`,
/// the tokens found and the limit, when the row may not be cut or its media alone are too long.
void fit_length(TokenRow& row, const ProcessOptions& options, const std::string& where);

}  // namespace lockstep
