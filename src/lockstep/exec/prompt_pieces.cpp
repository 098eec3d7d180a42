#include "lockstep/exec/prompt_pieces.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

namespace lockstep {

int64_t media_end(const Features& row) {
  int64_t end = 0;
  for (const auto& block : row.media) {
    for (const int32_t place : block.places) end = std::max<int64_t>(end, place + 1);
  }
  return end;
}

std::vector<int64_t> piece_ends(int64_t tokens, int64_t media_end) {
  constexpr int64_t kPiece = 512;  // of text: enough rows for products at their full speed
  std::vector<int64_t> ends;
  for (int64_t end = media_end > 0 ? media_end : kPiece; end < tokens; end += kPiece) ends.push_back(end);
  ends.push_back(tokens);
  return ends;
}

std::vector<SubBatch> pieces_of(const Flow& prompt, const Context& context, Modalities here,
                                std::span<const int64_t> ends, int64_t begin) {
  const Tensor& ids = prompt["input_ids"];
  const bool whole = begin == 0 && ends.size() == 1;
  const auto is_of_tokens = [](const std::string& slot) { return slot == "input_ids" || slot == "positions"; };
  std::vector<SubBatch> pieces;
  for (const int64_t end : ends) {
    if (end <= begin) continue;
    const auto piece = [&](const Tensor& value) { return whole ? value : value.narrow(-1, begin, end - begin); };
    const bool first = pieces.empty();
    SubBatch& part = pieces.emplace_back(
        SubBatch{.flow = {}, .context = context, .modalities = first ? here : Modalities(Modality::kText)});
    if (end < ends.back()) part.context.logits = LogitsWanted::kNone;
    for (const auto& [slot, value] : prompt.entries()) {
      if (is_of_tokens(slot) || first) part.flow.set(slot, is_of_tokens(slot) ? piece(value) : value);
    }
    if (!whole && !prompt.has("positions")) {
      part.flow.set("positions", at::arange(begin, end, ids.options().dtype(at::kLong)).unsqueeze(0));
    }
    begin = end;
  }
  return pieces;
}

}  // namespace lockstep
