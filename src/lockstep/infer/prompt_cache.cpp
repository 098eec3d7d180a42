#include "lockstep/infer/prompt_cache.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/exec/prompt_pieces.h"

namespace lockstep {
PromptText prompt_text(const Features& row, std::optional<size_t> adapter) {
  const size_t tokens = row.input_ids.size();
  PromptText text{.tokens = std::vector<PlacedToken>(tokens),
                  .media = media_key(row, adapter),
                  .media_end = media_end(row),
                  .ends = piece_ends(static_cast<int64_t>(tokens), media_end(row)),
                  .adapter = adapter};
  const size_t axes = row.positions.empty() ? 0 : row.positions.size() / tokens;
  check(axes <= std::tuple_size_v<decltype(PlacedToken::at)>, "prompts with positions on three axes at most");
  for (size_t i = 0; i < tokens; ++i) {
    PlacedToken& token = text.tokens[i];
    token.id = row.input_ids[i];
    token.at.fill(axes == 0 ? static_cast<int32_t>(i) : row.positions[i]);
    for (size_t a = 1; a < axes; ++a) token.at[a] = row.positions[a * tokens + i];
  }
  return text;
}

void add_said(PromptText& text, std::span<const int32_t> said) {
  if (text.tokens.empty()) return;
  int32_t last = *std::ranges::max_element(text.tokens.back().at);
  for (const int32_t id : said) {
    text.tokens.push_back({.id = id, .at = {}});
    text.tokens.back().at.fill(++last);
  }
}

/// One token at least is left to be read: what is said next follows from its pass. Of what an answer has said keys were made one by
/// one, and of a piece that ended elsewhere together with others: their bits are not those of the row's own pieces.
int64_t PromptCache::usable(const PromptText& row, PromptReuse reuse, const Slot& held) {
  if (reuse == PromptReuse::kNone || reuse != held.reuse) return 0;
  if (row.media != held.text.media || row.adapter != held.text.adapter) return 0;
  const auto most = std::min(held.held, static_cast<int64_t>(row.tokens.size()) - 1);
  const auto begin = row.tokens.begin();
  const int64_t alike = std::mismatch(begin, begin + most, held.text.tokens.begin()).first - begin;
  if (alike < row.media_end) return 0;
  if (reuse == PromptReuse::kAny) return alike;
  int64_t whole = 0;
  for (size_t i = 0; i < std::min(row.ends.size(), held.text.ends.size()); ++i) {
    if (row.ends[i] != held.text.ends[i] || row.ends[i] > alike) break;
    whole = row.ends[i];
  }
  return whole;
}

int64_t PromptCache::open(PromptText text, int64_t capacity, PromptReuse reuse) {
  Slot* chosen = nullptr;
  int64_t kept = 0;
  for (Slot& slot : slots_) {
    if (slot.open) continue;
    const int64_t here = usable(text, reuse, slot);
    const auto worth = [](int64_t alike, const Slot& of) { return std::tuple(alike, of.held == 0, -of.closed); };
    if (chosen != nullptr && worth(here, slot) <= worth(kept, *chosen)) continue;
    chosen = &slot;
    kept = here;
  }
  check(chosen != nullptr, "a free slot for a prompt");
  const int64_t slot = chosen - slots_.data();
  keys_.open(slot, capacity, kept);
  *chosen = {.text = std::move(text), .reuse = reuse, .open = true, .held = kept};
  return slot;
}

Alike PromptCache::most_alike(int64_t slot) const {
  const Slot& mine = slots_.at(static_cast<size_t>(slot));
  Alike most{slot, mine.held};
  for (const Slot& other : slots_) {
    if (&other == &mine) continue;
    const int64_t tokens = usable(mine.text, mine.reuse, other);
    if (tokens > most.tokens) most = {&other - slots_.data(), tokens};
  }
  return most;
}

void PromptCache::read(int64_t slot, const Alike& begin) {
  Slot& mine = slots_.at(static_cast<size_t>(slot));
  if (begin.slot != slot) keys_.begin_as(slot, begin.slot, begin.tokens);
  mine.held = static_cast<int64_t>(mine.text.tokens.size());
}

void PromptCache::close(int64_t slot, std::span<const int32_t> said) {
  Slot& mine = slots_.at(static_cast<size_t>(slot));
  if (!said.empty()) add_said(mine.text, said.first(said.size() - 1));
  mine.held = static_cast<int64_t>(mine.text.tokens.size());
  mine.open = false;
  mine.closed = ++clock_;
  keys_.close(slot);
}

void PromptCache::drop_open() {
  for (Slot& slot : slots_) {
    if (!slot.open) continue;
    keys_.close(&slot - slots_.data());
    slot = {};
  }
}

}  // namespace lockstep
