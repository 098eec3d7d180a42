#include "lockstep/data/sample_view.h"

#include <set>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

enum class Part : uint8_t { kText, kTrained, kMedia };

/// Cut at a character's border.
std::string shortened(std::string text, size_t max_chars) {
  if (text.size() <= max_chars) return text;
  while (max_chars > 0 && (static_cast<unsigned char>(text[max_chars]) & 0xC0) == 0x80) --max_chars;
  text.resize(max_chars);
  return text + " …";
}

}  // namespace

std::string view_sample(const Features& features, const Tokenizer& tokenizer, size_t max_chars) {
  const std::set<int32_t> media(features.media_index.begin(), features.media_index.end());
  const auto part_of = [&](size_t i) {
    if (media.contains(static_cast<int32_t>(i))) return Part::kMedia;
    return i < features.labels.size() && features.labels[i] >= 0 ? Part::kTrained : Part::kText;
  };
  std::string out;
  for (size_t i = 0; i < features.input_ids.size();) {
    const Part part = part_of(i);
    std::vector<int32_t> run;
    for (; i < features.input_ids.size() && part_of(i) == part; ++i) run.push_back(features.input_ids[i]);
    if (part == Part::kMedia) {
      out += fmt::format("<image ×{}>", run.size());
    } else {
      const std::string text = tokenizer.decode(run);
      out += part == Part::kTrained ? "[[" + text + "]]" : text;
    }
  }
  return shortened(std::move(out), max_chars);
}

}  // namespace lockstep
