#include "lockstep/verify/model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/data/speech.h"
#include "lockstep/exec/executor.h"
#include "lockstep/infer/decode_slots.h"
#include "lockstep/infer/speech_prompts.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/quantisation.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/hf_outputs.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

using Taps = std::vector<std::pair<std::string, Tensor>>;

Tensor pooled(const Tensor& hidden_BTD, const Tensor& mask_BT) {
  const Tensor weight_BT1 = to_dtype(mask_BT, Dtype::kF32).unsqueeze(2);
  return hidden_BTD.mul(weight_BT1).sum(1).div(weight_BT1.sum(1).clamp_min(1));
}

Tensor mask_of(const Named& inputs) {
  const auto mask = inputs.find("attention_mask");
  return mask != inputs.end() ? mask->second : inputs.at("input_ids").new_ones(inputs.at("input_ids").sizes());
}

Tensor zeros_like_of(const Tensor& tensor) { return zeros(shape_of(tensor), Dtype::kF32); }

double repetition_penalty_of(const std::filesystem::path& dir) {
  const auto path = dir / "generation_config.json";
  if (!std::filesystem::exists(path)) return 1.0;
  return HfConfig(read_json(path), path.string()).number("repetition_penalty", 1.0);
}

}  // namespace

const Family* family_built(const HfConfig& config) {
  const auto architectures = config.texts("architectures");
  for (const auto& family : families()) {
    for (const auto& name : family.architectures) {
      if (std::find(architectures.begin(), architectures.end(), name) != architectures.end())
        return is_of(family, config) ? &family : nullptr;
    }
    if (architectures.empty() && family.name == config.text("model_type", "")) return &family;
  }
  return nullptr;
}

struct VerifyModel::Impl {
  std::filesystem::path dir;
  HfConfig config;
  double repetition_penalty;  // which transformers' generate() takes from the checkpoint even when asked to be greedy
  const Family& family;
  Model model;
  Weights weights;
  KeyMap keys;
  std::shared_ptr<const AdapterFolder> adapter_files;
  std::optional<AdapterMatch> adapter;
  Plan plan;
  Communicator comm{World{}, make_solo_backend("cpu")};
  ParamStore store;
  Executor executor;
  ShardedAdamW adamw;
  std::unique_ptr<Processor> processor;  // where a talker's rules are asked for

  Impl(const std::filesystem::path& folder, const PlanOptions& options, const AdamWOptions& adamw_options,
       const VerifiedAdapter& asked)
      : dir(folder),
        config(load_config(dir)),
        repetition_penalty(repetition_penalty_of(dir)),
        family(family_of(config)),
        model(family.build(config)),
        weights(open_weights(family, config)),
        keys(KeyMap::match(model, weights)),
        plan(make_plan(model, with_codes(with_adapter(options, asked)))),
        store(plan, 0, Devices::one("cpu")),
        executor(model, plan, store, comm),
        adamw(store, comm, adamw_options) {
    if (!adapter) {
      store.load(weights, keys);
    } else {
      const AdapterValues values(model, adapter->layout, adapter_files, adapter->where);
      store.load(weights, keys, &values);
    }
  }

  PlanOptions with_codes(PlanOptions options) const {
    if (weights.any_quantised()) {
      options.quantised = std::make_shared<const Quantisation>(quantisation_of(model, weights, keys));
    }
    return options;
  }

  PlanOptions with_adapter(PlanOptions options, const VerifiedAdapter& asked) {
    if (asked.dir.empty()) return options;
    adapter_files = std::make_shared<const AdapterFolder>(AdapterFolder::open(asked.dir));
    adapter = adapter_files->match(model, naming_of_adapters(model, keys.dialect()));
    adapter->layout.loraplus_ratio = asked.loraplus_ratio;
    options.adapters = std::make_shared<const AdapterLayout>(adapter->layout);
    return options;
  }

  /// By the name under which a reference has it; what an adapter's files do not hold is left out.
  void put(Named& out, const ParamSource& source, const Tensor& value) const {
    if (!adapter) {
      out[source.key] = value.clone();
      return;
    }
    const auto place = adapter->where.find(source.key);
    if (place == adapter->where.end()) return;
    const StoredPart& part = place->second;
    Tensor& whole = out[part.name];
    if (!whole.defined()) whole = zeros({numel_of(part.whole_of(source.shape))}, Dtype::kF32);
    const Tensor flat = value.reshape({-1});
    for_each_piece(part.rows, source.shape, 0, flat.numel(), [&](int64_t there, int64_t here, int64_t count) {
      whole.narrow(0, there, count).copy_(flat.narrow(0, here, count));
    });
  }
  /// Of an adapter: as the files have their tensors.
  void shape_as_stored(Named& out) const {
    if (!adapter) return;
    for (const auto& tensor : adapter_files->tensors()) {
      const auto found = out.find(tensor.spec.name);
      if (found != out.end()) found->second = found->second.view(tensor.spec.shape);
    }
  }

  Batch batch_of(const Named& inputs, bool labelled) {
    std::vector<Features> rows = family.rows_of_hf(config, inputs);
    if (inputs.contains("speech_codes")) rows.at(0).speech = spoken(rows.at(0), inputs);
    for (auto& row : rows) {
      if (!labelled) row.labels.clear();
    }
    return collate(rows, {.layout = layout_of(inputs)});
  }

  const SpeechRules& speech_rules() {
    if (!processor) processor = family.processor(dir);
    check(processor->speech() != nullptr, "a model that talks");
    return *processor->speech();
  }
  std::string speaker_of(int64_t token) {
    for (const auto& [name, begins_with] : speech_rules().speakers) {
      if (begins_with == token) return name;
    }
    throw checkpoint_error(
        fmt::format("{}: expected a speaker that begins with token {}, found none", dir.string(), token));
  }
  SpeechSteps spoken(const Features& row, const Named& inputs) {
    Speech speech{.speaker = speaker_of(inputs.at("speech_speaker").item<int64_t>()), .codes = {}};
    const Tensor &codes = inputs.at("speech_codes"), &answer = inputs.at("speech_answer");
    for (int64_t i = 0; i < codes.numel(); ++i) speech.codes.push_back(static_cast<int32_t>(codes[i].item<int64_t>()));
    const AnswerSpan span{.begin = static_cast<size_t>(answer[0].item<int64_t>()),
                          .end = static_cast<size_t>(answer[1].item<int64_t>())};
    return spoken_steps(row, span, speech, speech_rules());
  }
};

VerifyModel::VerifyModel(const std::filesystem::path& checkpoint, const PlanOptions& plan, const AdamWOptions& adamw,
                         const VerifiedAdapter& adapter) {
  impl_ = std::make_unique<Impl>(checkpoint, plan, adamw, adapter);
}

VerifyModel::~VerifyModel() = default;

Named VerifyModel::forward(const Named& inputs) {
  Taps taps;
  Context context{.logits = LogitsWanted::kAll};
  context.tap = [&](const std::string& name, const Tensor& value) {
    taps.emplace_back(name, to_dtype(value.detach(), Dtype::kF32).clone());
  };
  Batch batch = impl_->batch_of(inputs, false);
  const Modalities here = batch.modalities;
  const Tensor* positions = batch.flow.find("positions");
  Named out;
  if (positions != nullptr && positions->dim() == 3) {
    out["position_ids"] = *positions;
    const auto rows = static_cast<int64_t>(batch.lengths.size());
    const Tensor furthest_B1 = positions->amax({0, 2}).unsqueeze(1);  // 0 at padding
    out["rope_deltas"] = furthest_B1.add(1).sub(from_values(std::span<const int64_t>(batch.lengths), {rows, 1}));
  }
  const Flow flow = impl_->executor.forward(std::move(batch.flow), context, here, here);
  out.merge(outputs_of_taps(taps));
  out["logits"] = to_dtype(flow["logits"], Dtype::kF32);
  if (const Tensor* said = flow.find("speech_logits")) out["speech_logits"] = *said;
  if (out.contains("last_hidden_state")) out["pooled"] = pooled(out["last_hidden_state"], mask_of(inputs));
  return out;
}

VerifyModel::Losses VerifyModel::backward(const Named& inputs, double loss_weight) {
  Batch batch = impl_->batch_of(inputs, true);
  const Modalities here = batch.modalities;
  const double codes = static_cast<double>(std::max<int64_t>(1, batch.speech_targets));
  const Context context{.training = true, .loss_weight = loss_weight, .speech_loss_weight = 1.0 / codes};
  const TrainOutput out = impl_->executor.train(std::move(batch.flow), context, here, here);
  return {.text = out.loss.item<double>(), .speech = out.speech_loss.defined() ? out.speech_loss.item<double>() : 0};
}

Named VerifyModel::gradients() {
  Named out;
  impl_->store.visit_gradients(impl_->comm, 0,
                               [&](const ParamSource& source, const Tensor& value) { impl_->put(out, source, value); });
  impl_->shape_as_stored(out);
  if (impl_->adapter) {
    for (const auto& one : impl_->adapter->idle) {
      out[one.name] = zeros_like_of(impl_->adapter_files->read(one.name));
    }
  } else {
    for (const auto& source : impl_->model.unused) out[source.key] = zeros(source.shape, Dtype::kF32);
  }
  return out;
}

Named VerifyModel::weights() {
  Named out;
  impl_->store.visit_full(impl_->comm, 0, Dtype::kF32,
                          [&](const ParamSource& source, const Tensor& value) { impl_->put(out, source, value); });
  impl_->shape_as_stored(out);
  return out;
}

void VerifyModel::set_weights(const Named& weights) {
  impl_->store.fill([&](const ParamSource& source, int64_t begin, const Tensor& out) {
    out.copy_(weights.at(source.key).reshape({-1}).narrow(0, begin, out.numel()));
  });
}

Tensor VerifyModel::generate(const Named& inputs, int64_t steps) {
  std::vector<Prompt> prompts;
  for (auto& row : impl_->family.rows_of_hf(impl_->config, inputs)) {
    row.labels.clear();
    prompts.push_back({static_cast<int64_t>(prompts.size()), std::move(row)});
  }
  const auto rows = static_cast<int64_t>(prompts.size());
  GenerateOptions options;
  options.max_new_tokens = steps;
  options.sampling.repetition_penalty = impl_->repetition_penalty;
  options.batch_size = rows;
  PromptCache read(impl_->model.dims.layers, rows);
  DecodeSlots slots(impl_->model.dims, options, read);
  for (auto& prompt : prompts) slots.admit(std::move(prompt));
  std::vector<int64_t> tokens(static_cast<size_t>(rows * steps));
  while (!slots.empty()) {
    auto parts = slots.parts();
    impl_->executor.forward(parts, modalities_of(parts));
    for (const auto& row : slots.take(parts)) {
      std::copy(row.tokens.begin(), row.tokens.end(), tokens.begin() + row.row * steps);
    }
  }
  return from_values(std::span<const int64_t>(tokens), {rows, steps});
}

bool VerifyModel::speaks() const { return impl_->model.speech.has_value(); }

Named VerifyModel::speak(const Named& inputs, const Tensor& sequence, int64_t codes, bool bare) {
  Features prompt = impl_->family.rows_of_hf(impl_->config, inputs).at(0);
  Generated answer;
  for (auto i = static_cast<int64_t>(prompt.input_ids.size()); i < sequence.size(1); ++i) {
    answer.tokens.push_back(static_cast<int32_t>(sequence[0][i].item<int64_t>()));
  }
  const SpeechRules& rules = impl_->speech_rules();
  const std::string speaker = rules.speakers.begin()->first;
  Named out;
  Context context{.logits = LogitsWanted::kAll};
  context.tap = [&](const std::string& name, const Tensor& value) {
    if (name == "speech_inputs") out["talker_inputs_embeds"] = value.clone();
  };
  const auto begun = [&] {
    ToSay said = to_say(prompt, answer, speaker, rules);
    if (!bare) return said;
    SpeechSteps& steps = *said.features.speech;
    std::ranges::fill(steps.codes, -1);
    const size_t axes =
        said.features.positions.empty() ? 1 : said.features.positions.size() / said.features.input_ids.size();
    const size_t placed = steps.positions.size() / axes;
    for (size_t i = 0; i < steps.positions.size(); ++i) steps.positions[i] = static_cast<int32_t>(i % placed);
    return said;
  };
  Batch batch = collate({begun().features}, {});
  const Modalities here = batch.modalities;
  const Flow read = impl_->executor.forward(std::move(batch.flow), context, here, here);
  out["talker_prefill_logits"] = read["speech_logits"];
  out["talker_thinker_reply_part"] = read["speech_reply"].unsqueeze(0);
  const SpeakOptions greedy{
      .max_codes = codes, .batch_size = 1, .sampling = {.temperature = 0, .repetition_penalty = 1.05}};
  SpeechSlots slots(*impl_->model.speech, rules, greedy);
  slots.admit(begun());
  std::vector<Tensor> logits;
  std::vector<int64_t> said;
  while (!slots.empty()) {
    auto parts = slots.parts();
    impl_->executor.forward(parts, modalities_of(parts));
    const Tensor& given = parts.at(0).flow["speech_logits"];
    logits.push_back(given.select(1, given.size(1) - 1).clone());
    for (const auto& row : slots.take(parts)) said.assign(row.codes.begin(), row.codes.end());
  }
  out["talker_step_logits"] = at::stack(logits, 1);
  out["talker_codes"] = from_values(std::span<const int64_t>(said), {1, static_cast<int64_t>(said.size())});
  return out;
}

void VerifyModel::clear_gradients() { impl_->executor.grads().clear(); }
double VerifyModel::gradient_norm() { return std::sqrt(impl_->executor.grads().local_sum_of_squares().item<double>()); }
void VerifyModel::update(double learning_rate, double divisor) { impl_->adamw.step(learning_rate, divisor); }

int64_t count_targets(const Tensor& labels) {
  return labels.narrow(1, 1, labels.size(1) - 1).ne(-100).sum().item<int64_t>();
}

}  // namespace lockstep
