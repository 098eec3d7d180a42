// Tests only: a small random job of a family whose every number follows from a seed, run on any number of ranks and
// any stage.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "lockstep/comm/shared_memory.h"
#include "lockstep/exec/executor.h"
#include "lockstep/exec/rehearsal.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/weights.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/make.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/registry.h"

namespace lockstep::test {

inline constexpr int32_t kImageToken = 40, kPadToken = 41, kVideoToken = 42, kVocab = 43;
inline constexpr int64_t kImageSide = 8, kPatch = 4;  // 4 patches an image

/// Sizes that no world divides: 5 heads on 1, hidden 20, mlp 27, a vocabulary of 43.
inline Json llava_config(bool tied) {
  return {{"architectures", {"LlavaForConditionalGeneration"}},
          {"model_type", "llava"},
          {"image_token_index", kImageToken},
          {"image_seq_length", 4},
          {"projector_hidden_act", "gelu"},
          {"vision_feature_layer", -2},
          {"vision_feature_select_strategy", "default"},
          {"tie_word_embeddings", tied},
          {"text_config",
           {{"model_type", "llama"},
            {"hidden_size", 20},
            {"intermediate_size", 27},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 5},
            {"num_key_value_heads", 1},
            {"head_dim", 4},
            {"max_position_embeddings", 64},
            {"rms_norm_eps", 1e-5},
            {"tie_word_embeddings", tied},
            {"vocab_size", kVocab}}},
          {"vision_config",
           {{"model_type", "clip_vision_model"},
            {"hidden_size", 12},
            {"image_size", kImageSide},
            {"patch_size", kPatch},
            {"intermediate_size", 17},
            {"num_attention_heads", 3},
            {"num_hidden_layers", 3}}}};
}

inline Model llava_model(bool tied = false) {
  const HfConfig config(llava_config(tied), "test config");
  return family_of(config).build(config);
}

inline MediaBlock random_pixels(std::mt19937_64& random, const Shape& shape) {
  MediaBlock block{.shape = shape};
  std::normal_distribution<float> pixel;
  for (int64_t i = 0; i < numel_of(shape); ++i) block.values.push_back(pixel(random));
  return block;
}

/// A row of 2..12 tokens, with an image when asked; about half of the tokens are targets.
inline Features random_row(std::mt19937_64& random, bool with_image) {
  Features row;
  if (with_image) {
    row.input_ids.assign(4, kImageToken);
    row.media.push_back(random_pixels(random, {1, 3, kImageSide, kImageSide}));
    row.media[0].places = {0, 1, 2, 3};
  }
  const auto tokens = 2 + random() % 11;
  for (uint64_t t = 0; t < tokens; ++t) row.input_ids.push_back(static_cast<int32_t>(random() % 40));
  for (const int32_t id : row.input_ids) row.labels.push_back(id < 40 && random() % 2 == 0 ? id : -100);
  return row;
}

/// Windows of 2 x 2 tokens, one layer of two over whole frames, three axes of uneven sections.
inline Json qwen_vl_config(bool tied) {
  return {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
          {"model_type", "qwen2_5_vl"},
          {"image_token_id", kImageToken},
          {"video_token_id", kVideoToken},
          {"hidden_size", 24},
          {"intermediate_size", 27},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 2, 3}}}},
          {"tie_word_embeddings", tied},
          {"vocab_size", kVocab},
          {"vision_config",
           {{"depth", 2},
            {"hidden_size", 24},
            {"intermediate_size", 17},
            {"num_heads", 3},
            {"out_hidden_size", 24},
            {"patch_size", 2},
            {"window_size", 8},
            {"fullatt_block_indexes", {1}},
            {"tokens_per_second", 2}}}};
}

inline Model qwen_vl_model(bool tied = false) {
  const HfConfig config(qwen_vl_config(tied), "test config");
  return family_of(config).build(config);
}

/// Text with one to three pictures among it when asked: images of any shape, videos of one to three groups of frames.
inline Features random_picture_row(std::mt19937_64& random, bool with_pictures) {
  Features row;
  const auto add_text = [&] {
    for (uint64_t t = 1 + random() % 5; t > 0; --t) row.input_ids.push_back(static_cast<int32_t>(random() % 40));
  };
  const auto edge = [&] { return static_cast<int64_t>(2 + 2 * (random() % 3)); };
  add_text();
  for (uint64_t pictures = with_pictures ? 1 + random() % 3 : 0; pictures > 0; --pictures) {
    const bool video = random() % 3 == 0;
    const int64_t frames = video ? static_cast<int64_t>(1 + random() % 3) : 1, high = edge(), wide = edge();
    MediaBlock block = random_pixels(random, {frames * high * wide, 3 * 2 * 2 * 2});
    block.facts["grid_thw"] = {frames, high, wide};
    block.modality = video ? Modality::kVideo : Modality::kImage;
    block.step_seconds = video ? 0.8 : 0;
    for (int64_t i = 0; i < frames * high * wide / 4; ++i) {
      block.places.push_back(static_cast<int32_t>(row.input_ids.size()));
      row.input_ids.push_back(video ? kVideoToken : kImageToken);
    }
    row.media.push_back(std::move(block));
    add_text();
  }
  for (const int32_t id : row.input_ids) row.labels.push_back(id < 40 && random() % 2 == 0 ? id : -100);
  set_mrope_positions(row, {.merge = 2, .tokens_per_second = 2});
  return row;
}

using RowMaker = Features (*)(std::mt19937_64& random, bool with_image);
using Rows = std::vector<Features>;
/// What each rank gets in one micro-batch.
using MicroBatch = std::vector<Rows>;

/// max_rows 0..n rows a rank; images on some rows, on some ranks, or nowhere.
inline MicroBatch random_micro_batch(std::mt19937_64& random, int world, int max_rows, RowMaker make_row = random_row) {
  MicroBatch ranks(static_cast<size_t>(world));
  const auto image_percent = (random() % 3) * 40;
  for (auto& rows : ranks) {
    const auto count = random() % static_cast<uint64_t>(max_rows + 1);
    for (uint64_t i = 0; i < count; ++i) rows.push_back(make_row(random, random() % 100 < image_percent));
  }
  return ranks;
}

using Named = std::map<std::string, Tensor>;

struct JobOptions {
  PlanOptions plan{.compute = Dtype::kF32};
  bool virtual_devices = false;     // even if the plan has one device alone
  std::vector<std::string> gpus{};  // "fakegpu:0", …: then on these
  double learning_rate = 1e-3;
  AdamWOptions adamw;
  uint64_t seed = 1;
  RowLayout layout = RowLayout::kRightPadded;
  double noise_alpha = 0;  // on embeddings
};

/// One rank's stores and executor over a model, filled from the seed.
class Job {
 public:
  Job(const Model& model, const JobOptions& options, Communicator& comm)
      : options_(options),
        plan_(make_plan(model, options.plan)),
        store_(plan_, comm.rank(), devices_of(options), plan_.shares() ? SharedMemory::among(comm) : nullptr),
        comm_(comm),
        executor_(model, plan_, store_, comm),
        adamw_(store_, comm, options.adamw) {
    store_.fill([&](const ParamSource& source, int64_t begin, const Tensor& out) {
      const Tensor whole = zeros({numel_of(source.shape)}, Dtype::kF32);
      fill_normal(whole, 0.3, options.seed, source.key);
      if (source.key.find("norm") != std::string::npos || source.key.find("ln_q") != std::string::npos) whole.add_(1.0);
      out.copy_(whole.narrow(0, begin, out.numel()));
    });
    if (plan_.shares()) comm.barrier(ParamStore::kWritten);
  }

  /// All micro-batches of one optimizer step; `mine` says which ranks' rows this process runs, each as one micro-batch.
  double accumulate(const std::vector<MicroBatch>& window, const std::vector<size_t>& mine) {
    int64_t targets = 0;
    for (const auto& micro : window) {
      for (const auto& rows : micro) targets += collate(rows, collate_options()).target_tokens;
    }
    executor_.grads().clear();
    double loss = 0;
    for (const auto& micro : window) {
      Modalities anywhere;
      for (const auto& rows : micro) anywhere |= collate(rows, collate_options()).modalities;
      for (const size_t r : mine) {
        const Batch batch = collate(micro[r], {.pad_token = kPadToken, .layout = options_.layout});
        const Modalities here = batch.modalities;
        Context context{
            .training = true, .loss_weight = 1.0 / static_cast<double>(std::max<int64_t>(1, targets)), .loss_chunk = 5};
        const auto number = static_cast<uint64_t>(&micro - window.data()) * 64 + r;
        for (size_t row = 0; plan_.drops() && row < micro[r].size(); ++row) {
          context.dropout_keys.push_back((number * 64 + row + options_.seed) * 0x9E3779B97F4A7C15ULL);
        }
        if (plan_.drops()) context.row_ends = batch.row_ends;
        context.noise = {.alpha = options_.noise_alpha, .keys = {}, .lengths = batch.lengths};
        for (size_t row = 0; row < micro[r].size(); ++row) context.noise.keys.push_back(number * 64 + row);
        const Modalities served = mine.size() > 1 ? here : anywhere;
        const auto out = executor_.train(batch.flow, context, here, served);
        if (ran) ran(here, served);
        if (!here.empty()) loss += out.loss.item<double>();
      }
    }
    return loss;
  }

  /// A window of this rank's rows, as a trainer runs it: pipelined where the plan has several devices.
  double train(const RowsOfStep& window, int64_t loss_chunk = 512) {
    int64_t targets = 0;
    std::vector<TrainInput> inputs;
    for (const auto& rows : window) {
      const OnDevice host(store_.devices().host);
      Batch batch = collate(rows, collate_options());
      targets += batch.target_tokens;
      inputs.push_back(
          {std::move(batch.flow), {.training = true, .loss_chunk = loss_chunk}, batch.modalities, batch.modalities});
    }
    for (auto& input : inputs) input.context.loss_weight = 1.0 / static_cast<double>(std::max<int64_t>(1, targets));
    executor_.grads().clear();
    const TrainOutput out = executor_.train(inputs);
    return out.loss.item<double>();
  }

  void update() { adamw_.step(options_.learning_rate, 1.0); }

  Named gradients() {
    Named all;
    store_.visit_gradients(comm_, 0, [&](const ParamSource& s, const Tensor& v) { all[s.key] = v.cpu().clone(); });
    return all;
  }
  Named weights() {
    Named all;
    store_.visit_full(comm_, 0, Dtype::kF32,
                      [&](const ParamSource& s, const Tensor& v) { all[s.key] = v.cpu().clone(); });
    return all;
  }
  const Plan& plan() const { return plan_; }
  Executor& executor() { return executor_; }
  ParamStore& store() { return store_; }
  ShardedAdamW& adamw() { return adamw_; }

  std::function<void(Modalities here, Modalities anywhere)>
      ran;  // after each micro-batch of accumulate(), if anybody asks

  /// Virtual devices where the plan has several or offloads: then the host is another place.
  static Devices devices_of(const JobOptions& options) {
    const Placement& placement = options.plan.placement;
    if (!options.gpus.empty()) {
      Devices devices{{}, DeviceMemory::host()};
      for (const auto& name : options.gpus) devices.blocks.push_back(DeviceMemory::make(name, {.torch_device = name}));
      return devices;
    }
    const bool plain = !options.virtual_devices && placement.num_devices == 1 && !placement.offload_params &&
                       !placement.offload_optimizer;
    return plain ? Devices::one("cpu") : Devices::virtual_ones(placement.num_devices);
  }
  static CollateOptions collate_options() { return {.pad_token = kPadToken}; }

 private:
  JobOptions options_;
  Plan plan_;
  ParamStore store_;
  Communicator& comm_;
  Executor executor_;
  ShardedAdamW adamw_;
};

/// Largest |a - b| relative to the largest |b| over all tensors; keys must agree.
inline double relative_difference(const Named& a, const Named& b) {
  double difference = 0, scale = 1e-30;
  for (const auto& [key, value] : b) {
    const auto it = a.find(key);
    if (it == a.end()) return 1e30;
    difference = std::max(difference, it->second.sub(value).abs().max().item<double>());
    scale = std::max(scale, value.abs().max().item<double>());
  }
  return a.size() == b.size() ? difference / scale : 1e30;
}

inline bool bit_equal(const Named& a, const Named& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           const auto it = b.find(entry.first);
           return it != b.end() && entry.second.equal(it->second);
         });
}

}  // namespace lockstep::test
