#include "lockstep/infer/speech_slots.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kEverySlot = -1;
constexpr int64_t kRoomAtFirst = 256;  // codes for which memory is taken at once

}  // namespace

struct SpeechSlots::Row {
  Spoken result;
  Features prompt;            // until its pass
  std::vector<int32_t> seen;  // codes of the prompt and those said
  Tensor ahead_RE;            // what the steps behind the prompt are given, the last for as long as it takes
  int64_t next_position = 0;
  bool started = false;
};

SpeechSlots::SpeechSlots(const ModelDims& dims, const SpeechRules& rules, const SpeakOptions& options)
    : dims_(dims),
      rules_(rules),
      options_(options),
      slots_(static_cast<size_t>(options.batch_size)),
      cache_(dims.layers, options.batch_size) {}

SpeechSlots::~SpeechSlots() = default;

void SpeechSlots::admit(ToSay said) {
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const auto& row) { return row == nullptr; });
  check(free != slots_.end() && said.features.speech, "a free slot for an answer to say");
  *free = std::make_unique<Row>();
  Row& row = **free;
  row.result.row = said.row;
  row.prompt = std::move(said.features);
  const SpeechSteps& steps = *row.prompt.speech;
  const size_t axes = row.prompt.positions.empty() ? 1 : row.prompt.positions.size() / row.prompt.input_ids.size();
  const size_t placed = steps.positions.size() / axes;
  row.next_position = steps.positions.back() + 1;
  row.seen.assign(placed - 2, rules_.code_mask);  // what transformers says has been said where the prompt stands
  row.seen.push_back(rules_.code_pad);
  row.seen.push_back(rules_.code_start);
  cache_.open(free - slots_.begin(), static_cast<int64_t>(placed) + std::min(options_.max_codes, kRoomAtFirst));
  ++rows_;
}

std::vector<SubBatch> SpeechSlots::parts() {
  std::vector<SubBatch> parts;
  if (std::any_of(slots_.begin(), slots_.end(), [](const auto& row) { return row && row->started; })) {
    parts.push_back(code_part());
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    auto& row = slots_[slot];
    if (row && !row->started) parts.push_back(prompt_part(static_cast<int64_t>(slot), *row));
  }
  return parts;
}

SubBatch SpeechSlots::prompt_part(int64_t slot, Row& row) {
  Batch batch = collate({std::exchange(row.prompt, {})}, options_.collate);
  return {.flow = std::move(batch.flow),
          .context = {.logits = LogitsWanted::kLast, .speech_cache = &cache_, .slot = slot},
          .modalities = batch.modalities};
}

/// One code more for every row that goes on; slots that are free take part with nothing.
SubBatch SpeechSlots::code_part() {
  std::vector<int64_t> codes, positions;
  std::vector<Tensor> ahead;
  const auto any = std::find_if(slots_.begin(), slots_.end(), [](const auto& row) { return row && row->started; });
  const Tensor nothing = (*any)->ahead_RE.select(0, 0).clone().zero_();
  for (const auto& row : slots_) {
    const bool goes_on = row && row->started;
    codes.push_back(goes_on ? row->seen.back() : -1);
    positions.push_back(goes_on ? row->next_position : 0);
    const int64_t said = goes_on ? static_cast<int64_t>(row->result.codes.size()) : 0;
    ahead.push_back(goes_on ? row->ahead_RE.select(0, std::min(said, row->ahead_RE.size(0)) - 1) : nothing);
  }
  const auto rows = static_cast<int64_t>(slots_.size());
  return {.flow = {{"speech_code_ids", from_values(codes, {rows})},
                   {"speech_positions", from_values(positions, {rows, 1})},
                   {"speech_ahead", at::stack(ahead)}},
          .context = {.logits = LogitsWanted::kLast, .speech_cache = &cache_, .slot = kEverySlot},
          .modalities = Modality::kSpeech};
}

std::vector<Spoken> SpeechSlots::take(std::span<const SubBatch> parts) {
  std::vector<Spoken> ended;
  const auto hear = [&](int64_t slot, const Tensor& logits_V) {
    Row& row = *slots_[static_cast<size_t>(slot)];
    if (accept(row, {logits_V.mutable_data_ptr<float>(), static_cast<size_t>(logits_V.numel())})) return;
    ended.push_back(std::move(row.result));
    slots_[static_cast<size_t>(slot)].reset();
    cache_.close(slot);
    --rows_;
  };
  for (const auto& part : parts) {
    const Tensor& given = part.flow["speech_logits"];
    const Tensor logits_RV = given.select(1, given.size(1) - 1).cpu().contiguous();
    if (part.context.slot != kEverySlot) {
      Row& row = *slots_[static_cast<size_t>(part.context.slot)];
      row.started = true;
      cache_.start(part.context.slot);
      row.ahead_RE = part.flow["speech_reply"];
      hear(part.context.slot, logits_RV.select(0, 0));
      continue;
    }
    for (int64_t slot = 0; slot < logits_RV.size(0); ++slot) {
      const auto& row = slots_[static_cast<size_t>(slot)];
      if (row && !row->result.codes.empty()) hear(slot, logits_RV.select(0, slot));
    }
  }
  return ended;
}

/// Takes the row's next code; whether the row goes on.
bool SpeechSlots::accept(Row& row, std::span<float> logits) const {
  Spoken& result = row.result;
  check(rules_.code_start < static_cast<int32_t>(logits.size()), "codes of the talker's vocabulary");
  logits[static_cast<size_t>(rules_.code_start)] = -std::numeric_limits<float>::infinity();  // is never said
  const auto said = static_cast<int64_t>(result.codes.size());
  const int32_t code = next_token(logits, row.seen, options_.sampling, {.row = result.row, .position = said});
  result.stopped = code == rules_.code_pad || code == rules_.code_end;
  if (result.stopped) return false;
  if (said > 0) ++row.next_position;
  result.codes.push_back(code);
  row.seen.push_back(code);
  const bool room = dims_.max_positions <= 0 || row.next_position < dims_.max_positions;
  return room && static_cast<int64_t>(result.codes.size()) < options_.max_codes;
}

}  // namespace lockstep
