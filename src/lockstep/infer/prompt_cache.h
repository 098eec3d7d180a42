// The slots of rows that are answered, and who may begin with what another has read: several questions about one picture or
// one document, or the turns of a conversation, read what they have in common once. Nothing is kept for that but what
// stands in the slots anyway: a row that has ended leaves its tokens there until the slot is taken again.
//
// Where a prompt is cut into pieces follows from the prompt alone (exec/prompt_pieces.h), and each runs by itself, whether
// others have read it before or not: so a row's bits never depend on its neighbours.
//
// Example:
//   PromptCache prompts(dims.layers, 8);
//   const int64_t slot = prompts.open(prompt_text(row, adapter), row_tokens + 64, PromptReuse::kPieces);
//   const Alike begin = prompts.most_alike(slot);          // begin.tokens need not be read
//   prompts.read(slot, begin);                             // and this pass reads the rest
//   prompts.start(slot);                                   // after the pass
//   prompts.close(slot, answer);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/infer/media_memory.h"
#include "lockstep/model/kv_cache.h"

namespace lockstep {

/// A token and its place, on all axes alike where a family has one.
struct PlacedToken {
  int32_t id = 0;
  std::array<int32_t, 3> at = {};
  bool operator==(const PlacedToken&) const = default;
};

/// What a row's keys and values follow from.
struct PromptText {
  std::vector<PlacedToken> tokens;
  std::optional<MediaKey> media;
  int64_t media_end = 0;      // tokens up to the last that media fill
  std::vector<int64_t> ends;  // of the pieces that the prompt is read in
  std::optional<size_t> adapter;
};
PromptText prompt_text(const Features& row, std::optional<size_t> adapter);
/// Tokens that are said behind it.
void add_said(PromptText& text, std::span<const int32_t> said);

/// With what of another row a prompt may begin.
enum class PromptReuse : uint8_t {
  kNone,
  kPieces,  // whole pieces
  kAny,     // as much as is alike: bits depend on where that ends
};

/// How many tokens a row has in common with what a slot holds.
struct Alike {
  int64_t slot = 0, tokens = 0;
};

class PromptCache {
 public:
  PromptCache(int64_t layers, int64_t slots) : keys_(layers, slots), slots_(static_cast<size_t>(slots)) {}

  KvCache& keys() { return keys_; }

  /// A closed slot for a row, if there is one that whose former row began most alike. `capacity` as of KvCache::open.
  int64_t open(PromptText text, int64_t capacity, PromptReuse reuse);
  /// The slot that holds most of what the row begins with: its own or another's, that a part of this pass before it may read.
  Alike most_alike(int64_t slot) const;
  /// The row begins with that. The pass that comes reads the rest: parts behind the row's may begin as it does.
  void read(int64_t slot, const Alike& begin);
  void start(int64_t slot) { keys_.start(slot); }
  /// Ends the row, which has said these tokens; the last of them may not have been read.
  void close(int64_t slot, std::span<const int32_t> said);
  /// Ends all rows and forgets what they have read: a pass of theirs has failed.
  void drop_open();

 private:
  struct Slot {
    PromptText text;
    PromptReuse reuse = PromptReuse::kNone;
    bool open = false;
    int64_t held = 0;    // tokens of the text that have been read, or are in the pass that comes
    int64_t closed = 0;  // when: rows end one after the other
  };
  static int64_t usable(const PromptText& row, PromptReuse reuse, const Slot& held);

  KvCache keys_;
  std::vector<Slot> slots_;
  int64_t clock_ = 0;
};

}  // namespace lockstep
