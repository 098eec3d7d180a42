#include "lockstep/data/sample_view.h"

#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// What a token is: text, a target, or (from 0) filled by that block.
constexpr int kText = -1, kTrained = -2;

/// Cut at a character's border.
std::string shortened(std::string text, size_t max_chars) {
  if (text.size() <= max_chars) return text;
  while (max_chars > 0 && (static_cast<unsigned char>(text[max_chars]) & 0xC0) == 0x80) --max_chars;
  text.resize(max_chars);
  return text + " …";
}

}  // namespace

std::string view_sample(const Features& features, const Tokenizer& tokenizer, size_t max_chars) {
  const std::vector<int> filled = filled_by(features.media, features.input_ids.size());
  const auto part_of = [&](size_t i) {
    if (filled[i] >= 0) return filled[i];
    return i < features.labels.size() && features.labels[i] >= 0 ? kTrained : kText;
  };
  std::string out;
  for (size_t i = 0; i < features.input_ids.size();) {
    const int part = part_of(i);
    std::vector<int32_t> run;
    for (; i < features.input_ids.size() && part_of(i) == part; ++i) run.push_back(features.input_ids[i]);
    if (part >= 0) {
      out += fmt::format("<{} ×{}>", modality_name(features.media[static_cast<size_t>(part)].modality), run.size());
    } else {
      const std::string text = tokenizer.decode(run);
      out += part == kTrained ? "[[" + text + "]]" : text;
    }
  }
  return shortened(std::move(out), max_chars);
}

}  // namespace lockstep
