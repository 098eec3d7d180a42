#include "lockstep/text/sentencepiece/piece_model.h"

#include <utility>

namespace lockstep {
namespace {

constexpr size_t kCachedWordBytes = 64;  // longer words seldom come again

}  // namespace

PieceModel::PieceModel(PieceModelFile file)
    : table_(std::move(file.pieces)),
      normalizer_(file.normalization, file.path + ": normalizer_spec"),
      merges_(table_, file.path),
      drops_first_space_(file.normalization.add_dummy_prefix || file.normalization.remove_extra_whitespaces),
      drops_all_spaces_(file.normalization.remove_extra_whitespaces),
      unknown_surface_(std::move(file.unknown_surface)),
      cache_(std::make_unique<WordCache>()) {}

void PieceModel::encode(std::string_view text, bool has_prefix, PieceIds& out) const {
  const std::string normal = normalizer_.apply(text, merges_.symbols(), has_prefix);
  out.ids.reserve(out.ids.size() + normal.size() / 4);
  for (size_t at = 0; at < normal.size();) {
    const size_t end = merges_.word_end(normal, at);
    encode_word(std::string_view(normal).substr(at, end - at), out);
    at = end;
  }
}

void PieceModel::encode_word(std::string_view word, PieceIds& out) const {
  const bool cached = word.size() <= kCachedWordBytes;
  if (cached && cache_->find(word, out.ids)) return;
  const size_t begin = out.ids.size();
  bool has_unknown = false;
  size_t at = 0;
  for (const PieceSpan& span : merges_.cut(word)) {
    const std::string_view text = word.substr(at, span.size);
    at += span.size;
    if (span.id != table_.unknown()) {
      out.ids.push_back(span.id);
    } else if (!table_.bytes().empty()) {
      for (const char byte : text) out.ids.push_back(table_.bytes()[static_cast<unsigned char>(byte)]);
    } else {
      has_unknown = true;
      if (!out.unknown.empty() && out.unknown.back().at + 1 == out.ids.size()) {
        out.unknown.back().text += text;
      } else {
        out.unknown.push_back({out.ids.size(), std::string(text)});
        out.ids.push_back(span.id);
      }
    }
  }
  if (cached && !has_unknown) cache_->put(word, {out.ids.begin() + static_cast<std::ptrdiff_t>(begin), out.ids.end()});
}

}  // namespace lockstep
