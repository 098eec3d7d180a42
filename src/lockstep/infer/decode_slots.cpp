#include "lockstep/infer/decode_slots.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/exec/prompt_pieces.h"
#include "lockstep/infer/stop_words.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kEverySlot = -1;
constexpr int64_t kRoomAtFirst = 64;  // tokens of an answer for which memory is taken at once

/// The last position's logits of each row, f32 on the host.
Tensor last_logits(const SubBatch& part) {
  const Tensor& logits = part.flow["logits"];
  return to_dtype(logits.select(1, logits.size(1) - 1), Dtype::kF32).cpu().contiguous();
}

}  // namespace

DecodeSlots::DecodeSlots(const ModelDims& dims, const GenerateOptions& options, PromptCache& prompts,
                         MediaMemory* media)
    : dims_(dims),
      options_(options),
      media_(media),
      slots_(static_cast<size_t>(options.batch_size)),
      prompts_(prompts) {
  check(prompts.keys().slots() == options.batch_size, "as many slots for prompts as for rows");
}

void DecodeSlots::admit(Prompt prompt) {
  PromptText text = prompt_text(prompt.features, prompt.adapter);
  Row row{.result = {.row = prompt.row, .tokens = {}},
          .prompt = std::move(prompt.features),
          .seen = {},
          .adapter = prompt.adapter};
  row.seen = row.prompt.input_ids;
  if (media_ != nullptr) row.media = text.media;
  row.media_end = text.media_end;
  const auto tokens = static_cast<int64_t>(row.seen.size());
  row.ends = text.ends;
  const int64_t slot =
      prompts_.open(std::move(text), tokens + std::min(options_.max_new_tokens, kRoomAtFirst), options_.reuse);
  slots_[static_cast<size_t>(slot)] = std::move(row);
  ++rows_;
}

std::vector<SubBatch> DecodeSlots::parts() {
  std::vector<SubBatch> parts;
  if (std::any_of(slots_.begin(), slots_.end(), [](const auto& row) { return row && row->started; })) {
    parts.push_back(token_part());
  }
  std::set<MediaKey> looked_at;  // in this pass
  for (int64_t slot = 0; slot < static_cast<int64_t>(slots_.size()); ++slot) {
    auto& row = slots_[static_cast<size_t>(slot)];
    if (!row || row->started) continue;
    const Alike begin = prompts_.most_alike(slot);
    const bool looks = row->media && begin.tokens < row->media_end;
    const bool second = looks && media_->find(*row->media) == nullptr && !looked_at.insert(*row->media).second;
    if (second && !std::exchange(row->waited, true))
      continue;  // known in the next, unless they are too large to be kept
    prompts_.read(slot, begin);
    add_prompt(slot, *row, begin.tokens, parts);
  }
  return parts;
}

/// The pieces of a prompt behind the first `known` tokens.
void DecodeSlots::add_prompt(int64_t slot, Row& row, int64_t known, std::vector<SubBatch>& parts) {
  if (known >= row.media_end) row.prompt.media.clear();
  const bool looks = row.media && !row.prompt.media.empty();
  const auto slots_of_media = looks ? media_slots(row.prompt) : std::vector<std::string>();
  const Batch batch = collate({std::exchange(row.prompt, {})}, options_.collate);
  row.next_position = batch.next_positions.at(0);
  Context context{.logits = LogitsWanted::kLast, .cache = &prompts_.keys(), .slot = slot};
  if (options_.adapters > 0) {
    context.adapter_rows.emplace();
    if (row.adapter) context.adapter_rows->adapters.push_back(*row.adapter);
  }
  auto pieces = pieces_of(batch.flow, context, batch.modalities, row.ends, known);
  if (looks) {
    pieces.front().media_slots = slots_of_media;
    pieces.front().media = media_->find(*row.media);
  }
  std::ranges::move(pieces, std::back_inserter(parts));
}

SubBatch DecodeSlots::token_part() {
  std::vector<int64_t> ids, positions;
  for (const auto& row : slots_) {
    const bool goes_on = row && row->started;
    ids.push_back(goes_on ? row->seen.back() : options_.collate.pad_token);
    positions.push_back(goes_on ? row->next_position - 1 : 0);
  }
  const auto rows = static_cast<int64_t>(slots_.size());
  return {.flow = {{"input_ids", from_values(ids, {rows, 1})}, {"positions", from_values(positions, {rows, 1})}},
          .context = {.logits = LogitsWanted::kLast,
                      .cache = &prompts_.keys(),
                      .adapter_rows = adapters_of_slots(),
                      .slot = kEverySlot}};
}

/// Of those that go on. All adapters, whether anybody takes them or not: products are of the same size in each pass.
std::optional<AdapterRows> DecodeSlots::adapters_of_slots() const {
  if (options_.adapters == 0) return std::nullopt;
  AdapterRows out;
  for (size_t adapter = 0; adapter < options_.adapters; ++adapter) {
    std::vector<int64_t> takes;
    for (const auto& row : slots_) takes.push_back(row && row->started && row->adapter == adapter ? 1 : 0);
    out.adapters.push_back(adapter);
    out.rows.push_back(to_dtype(from_values(takes, {static_cast<int64_t>(takes.size())}), Dtype::kBool));
  }
  return out;
}

std::vector<Generated> DecodeSlots::take(std::span<const SubBatch> parts) {
  std::vector<Generated> ended;
  const auto hear = [&](int64_t slot, const Tensor& logits_V) {
    Row& row = *slots_[static_cast<size_t>(slot)];
    row.started = true;
    if (accept(row, {logits_V.mutable_data_ptr<float>(), static_cast<size_t>(logits_V.numel())})) return;
    prompts_.close(slot, row.result.tokens);
    ended.push_back(std::move(row.result));
    slots_[static_cast<size_t>(slot)].reset();
    --rows_;
  };
  for (const auto& part : parts) {
    const int64_t of = part.context.slot;
    if (of != kEverySlot && part.media) media_->keep(*slots_[static_cast<size_t>(of)]->media, part.media);
    if (part.context.logits == LogitsWanted::kNone) continue;  // a piece that others follow
    const Tensor logits_RV = last_logits(part);
    if (of != kEverySlot) {
      prompts_.start(of);
      hear(of, logits_RV.select(0, 0));
      continue;
    }
    for (int64_t slot = 0; slot < logits_RV.size(0); ++slot) {
      const auto& row = slots_[static_cast<size_t>(slot)];
      if (row && row->started) hear(slot, logits_RV.select(0, slot));
    }
  }
  return ended;
}

/// Takes the row's next token; whether the row goes on.
bool DecodeSlots::accept(Row& row, std::span<float> logits) const {
  Generated& result = row.result;
  const int32_t token = next_token(logits, options_.penalises_prompt ? row.seen : result.tokens, options_.sampling,
                                   {.row = result.row, .position = static_cast<int64_t>(result.tokens.size())});
  const auto& stops = options_.stop_tokens;
  result.stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
  if (result.stopped) return false;
  result.tokens.push_back(token);
  row.seen.push_back(token);
  ++row.next_position;
  if (options_.on_token) options_.on_token(result.row, token);
  result.stopped = ends_by_stop_word(result.tokens, options_.sampling.stop_words, options_.text_of);
  if (result.stopped) return false;
  const bool room = options_.passes_positions || dims_.max_positions <= 0 ||
                    static_cast<int64_t>(row.seen.size()) < dims_.max_positions;
  return room && static_cast<int64_t>(result.tokens.size()) < options_.max_new_tokens;
}

}  // namespace lockstep
