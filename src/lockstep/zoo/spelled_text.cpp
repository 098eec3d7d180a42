#include "lockstep/zoo/spelled_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/sample.h"
#include "lockstep/zoo/prepared_video.h"
#include "lockstep/zoo/regularized_media.h"

namespace lockstep {
namespace {

/// Source: ms-swift 4.6 rescale_image, which resizes by Pillow.
Image rescaled(Image image, const MediaOptions& options, const MediumRules& rules) {
  if (options.as_llama_factory) {
    return regular(
        std::move(image),
        {.least = options.min_pixels, .most = options.shrink_to_pixels, .stretches_thin = rules.stretches_thin});
  }
  const auto [width, height] = rescaled_edges({image.width, image.height}, options);
  if (width == image.width && height == image.height) return image;
  return resize(image, width, height, Resample::kBilinear, ImageBackend::kPillow);
}

void refuse_reserved(const MediaRules& rules, std::string_view text, const std::string& where) {
  for (const auto& word : rules.reserved) {
    if (text.find(word) == std::string_view::npos) continue;
    throw data_error(
        fmt::format("{}: expected a text without \"{}\", which this model knows media by, found it", where, word),
        "write it in other characters, or leave the row out");
  }
}

TextPiece& text_piece(std::vector<TextPiece>& pieces) {
  if (pieces.empty() || pieces.back().block >= 0) pieces.emplace_back();
  return pieces.back();
}

void add_text(std::vector<TextPiece>& pieces, std::string_view text) {
  if (text.empty()) return;
  TextPiece& piece = text_piece(pieces);
  piece.text += text;
  piece.tail = 0;
}

/// What stands beside media: at the piece's beginning, at its end, or both.
void add_medium_text(std::vector<TextPiece>& pieces, std::string_view text) {
  if (text.empty()) return;
  TextPiece& piece = text_piece(pieces);
  const bool from_start = piece.lead == piece.text.size() && pieces.size() > 1;
  piece.text += text;
  piece.tail += text.size();
  if (from_start) piece.lead = piece.text.size();
}

/// Which tokens of a text piece are those of `piece.lead` and `piece.tail` bytes: where they read alike by themselves.
std::vector<bool> marks_of(const Tokenizer& tokenizer, const TextPiece& piece, const std::vector<int32_t>& ids) {
  std::vector<bool> marks(ids.size(), piece.lead == piece.text.size() || piece.tail == piece.text.size());
  if (piece.lead > 0) {
    const auto lead = tokenizer.encode(piece.text.substr(0, piece.lead), {.continues = true});
    if (lead.size() <= ids.size() && std::equal(lead.begin(), lead.end(), ids.begin()))
      std::fill_n(marks.begin(), lead.size(), true);
  }
  if (piece.tail > 0) {
    const auto tail = tokenizer.encode(piece.text.substr(piece.text.size() - piece.tail), {.continues = true});
    if (tail.size() <= ids.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin()))
      std::fill_n(marks.rbegin(), tail.size(), true);
  }
  return marks;
}

}  // namespace

std::array<int64_t, 2> rescaled_edges(std::array<int64_t, 2> edges, const MediaOptions& options) {
  const int64_t max_pixels = options.shrink_to_pixels;
  if (options.as_llama_factory) {
    const auto steps = regular_steps(edges, {.least = options.min_pixels, .most = max_pixels});
    return steps.empty() ? edges : steps.back();
  }
  if (max_pixels <= 0 || edges[0] * edges[1] <= max_pixels) return edges;
  const double ratio = static_cast<double>(edges[0]) / static_cast<double>(edges[1]);
  const double height = std::sqrt(static_cast<double>(max_pixels) / ratio);
  const auto edge = [](double length) { return std::max<int64_t>(1, static_cast<int64_t>(length)); };
  return {edge(height * ratio), edge(height)};
}

std::function<std::vector<MediaRun>(const std::vector<MediaBlock>&, int64_t)> filled_with(
    int32_t token, std::function<int64_t(const MediaBlock&)> num_tokens) {
  return [token, num_tokens = std::move(num_tokens)](const std::vector<MediaBlock>& blocks, int64_t) {
    std::vector<MediaRun> runs;
    for (size_t b = 0; b < blocks.size(); ++b) {
      runs.push_back({.token = token, .count = num_tokens(blocks[b]), .block = b});
    }
    return runs;
  };
}

std::vector<TextPiece> MediaSpeller::spell(std::string_view text) {
  std::vector<TextPiece> pieces;
  while (true) {
    size_t at = std::string_view::npos;
    std::pair<const Modality, MediumRules> const* next = nullptr;
    for (const auto& kind : rules_.kinds) {
      const size_t found = text.find(kind.second.placeholder);
      if (found >= at) continue;
      at = found;
      next = &kind;
    }
    refuse_reserved(rules_, text.substr(0, at), sample_.where);
    if (next == nullptr) {
      add_text(pieces, text);
      return pieces;
    }
    const bool known = frames_ != nullptr && frames_->contains(next->first);
    const MediumFrame frame = known ? frames_->at(next->first) : MediumFrame{};
    std::string_view before = text.substr(0, at);
    const bool framed = before.ends_with(frame.before);
    if (framed) before.remove_suffix(frame.before.size());
    add_text(pieces, before);
    if (framed) add_medium_text(pieces, frame.before);
    add(pieces, next->first, next->second);
    text.remove_prefix(at + next->second.placeholder.size());
    if (!text.starts_with(frame.after)) continue;
    add_medium_text(pieces, frame.after);
    text.remove_prefix(frame.after.size());
  }
}

void MediaSpeller::add(std::vector<TextPiece>& pieces, Modality kind, const MediumRules& rules) {
  size_t& index = taken_[kind];
  const size_t given = media_count(sample_, kind);
  if (index == given) {
    throw data_error(fmt::format("{}: expected \"{}\" for each {} alone, {} of them, found more in the text",
                                 sample_.where, rules.placeholder, modality_name(kind), given),
                     fmt::format("the text of a row may not hold the placeholder itself: write {}", media_mark(kind)));
  }
  auto blocks = prepared(kind, index, rules);
  const auto first = static_cast<int>(blocks_.size());
  for (const MediaRun& run : rules.spell(blocks, static_cast<int64_t>(index))) {
    if (!run.text.empty()) {
      add_medium_text(pieces, run.text);
    } else {
      check(run.block < blocks.size() && run.token >= 0, "a run of tokens that a block of this medium fills");
      pieces.push_back(
          {.token = run.token, .count = run.count, .block = first + static_cast<int>(run.block), .apart = run.apart});
    }
  }
  std::move(blocks.begin(), blocks.end(), std::back_inserter(blocks_));
  ++index;
}

std::vector<MediaBlock> MediaSpeller::prepared(Modality kind, size_t index, const MediumRules& rules) const {
  const auto prepare = [&](LoadedMedium medium) {
    return rules.prepare(medium, options_of_family(options_), sample_.where);
  };
  if (kind == Modality::kImage) {
    return prepare({.frames = {rescaled(load_image(sample_.images[index], sample_.where, !options_.as_llama_factory),
                                        options_, rules)}});
  }
  if (kind == Modality::kAudio)
    return prepare({.sound = load_audio(sample_.audios[index], sample_.where, rules.sound)});
  check(kind == Modality::kVideo, "a kind of media that rows hold");
  return prepared_video(sample_.videos[index], rules, options_, sample_.where);
}

void MediaSpeller::check_all_stand(const std::map<Modality, size_t>& marks) const {
  for (const auto& [kind, expected] : marks) {
    const auto found = taken_.find(kind);
    const size_t stand = found == taken_.end() ? 0 : found->second;
    if (stand == expected) continue;
    throw data_error(
        fmt::format("{}: expected {} {}(s) in the rendered conversation, found {}: the chat template leaves "
                    "some out",
                    sample_.where, expected, modality_name(kind), stand),
        "put media into user messages, or take a template that writes them where they stand");
  }
}

SpelledTokens encode(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces, bool continues) {
  SpelledTokens out;
  // A special token beside a text decides how its ends are read; it is encoded with the text, and cut off again.
  const auto beside = [&](size_t i) {
    const bool stands = i < pieces.size() && pieces[i].block >= 0 && pieces[i].count > 0 && !pieces[i].apart;
    return stands ? pieces[i].token : -1;
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TextPiece& piece = pieces[i];
    if (piece.block >= 0) {
      out.ids.insert(out.ids.end(), static_cast<size_t>(piece.count), piece.token);
      out.filled.resize(out.ids.size(), piece.block);
      out.marks.resize(out.ids.size(), true);
      continue;
    }
    const int32_t before = i == 0 ? -1 : beside(i - 1), after = beside(i + 1);
    std::string text = (before < 0 ? "" : tokenizer.token_of(before)) + piece.text;
    if (after >= 0) text += tokenizer.token_of(after);
    const bool begins = i > 0 && pieces[i - 1].apart;
    std::vector<int32_t> ids = tokenizer.encode(text, {.continues = !begins && (continues || before >= 0)});
    check(
        (before < 0 || (!ids.empty() && ids.front() == before)) && (after < 0 || (!ids.empty() && ids.back() == after)),
        "a token that media fill is one that the tokenizer adds");
    if (before >= 0) ids.erase(ids.begin());
    if (after >= 0) ids.pop_back();
    const std::vector<bool> marks = marks_of(tokenizer, piece, ids);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.marks.insert(out.marks.end(), marks.begin(), marks.end());
    out.filled.resize(out.ids.size(), -1);
  }
  out.ends_apart = !pieces.empty() && pieces.back().apart;
  return out;
}

}  // namespace lockstep
