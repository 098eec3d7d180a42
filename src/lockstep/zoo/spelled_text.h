// The text of a chat template with a row's media spelled in it -> tokens, and which of them each medium fills.
//
// Which tokens are filled comes from the spelling alone, never from searching ids: a family may use a token for media
// that texts hold too.
//
// Example:
//   MediaSpeller speller(rules, sample, options);
//   const SpelledTokens tokens = encode(tokenizer, speller.spell(text), /*continues=*/false);
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// Text, or a token as many times as a block of the row fills.
struct TextPiece {
  std::string text = {};
  int32_t token = -1;
  int64_t count = 0;
  int block = -1;      // index in MediaSpeller::blocks(); -1: text
  bool apart = false;  // as in MediaRun
  /// Bytes at the text's beginning and end that were written for media beside it: all of it where they meet.
  size_t lead = 0, tail = 0;
};

struct SpelledTokens {
  std::vector<int32_t> ids;
  std::vector<int> filled;  // by token: the block that fills it, -1 for text
  std::vector<bool> marks;  // by token: text that stands for media, which no assistant writes
  bool ends_apart = false;  // with a medium whose neighbours are read by themselves: what follows is a text of its own
};

/// What a chat template writes before and behind a placeholder.
struct MediumFrame {
  std::string before, after;
};

/// The media of one row, loaded and prepared as their placeholders come. Borrows its arguments.
class MediaSpeller {
 public:
  /// `frames`: what the chat template writes around the placeholder of a kind.
  MediaSpeller(const MediaRules& rules, const Sample& sample, const MediaOptions& options,
               const std::map<Modality, MediumFrame>* frames = nullptr)
      : rules_(rules), sample_(sample), options_(options), frames_(frames) {}

  /// Each placeholder takes the row's next medium of its kind. Throws UserError(kData) naming the row when there is
  /// none left, when a medium cannot be read, or when the text holds what is reserved.
  std::vector<TextPiece> spell(std::string_view text);
  /// Throws UserError(kData) unless as many media stand in the texts as their messages have marks.
  void check_all_stand(const std::map<Modality, size_t>& marks) const;
  std::vector<MediaBlock>& blocks() { return blocks_; }

 private:
  void add(std::vector<TextPiece>& pieces, Modality kind, const MediumRules& rules);
  std::vector<MediaBlock> prepared(Modality kind, size_t index, const MediumRules& rules) const;

  const MediaRules& rules_;
  const Sample& sample_;
  const MediaOptions& options_;
  const std::map<Modality, MediumFrame>* frames_;
  std::map<Modality, size_t> taken_;
  std::vector<MediaBlock> blocks_;
};

/// Edges of a picture that `--max_pixels` scales down.
std::array<int64_t, 2> rescaled_edges(std::array<int64_t, 2> edges, const MediaOptions& options);

/// The ids of the whole text, as if it were encoded at once, but for texts beside media that stand apart. `continues`: as in
/// EncodeOptions.
SpelledTokens encode(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces, bool continues);

}  // namespace lockstep
