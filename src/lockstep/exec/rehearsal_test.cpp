// What a rehearsal says a step needs, beside what the step then needs.
#include "lockstep/exec/rehearsal.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/tensor/product.h"
#include "lockstep/testing/sampled.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

Json qwen2_config(bool tied) {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"model_type", "qwen2"},
          {"hidden_size", 96},
          {"intermediate_size", 240},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 3},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", tied},
          {"vocab_size", 1031}};
}

Json wide_llava_config() {
  Json config = llava_config(false);
  config["image_seq_length"] = 64;
  config["text_config"]["hidden_size"] = 80;
  config["text_config"]["intermediate_size"] = 216;
  config["text_config"]["num_hidden_layers"] = 2;
  config["text_config"]["head_dim"] = 16;
  config["text_config"]["max_position_embeddings"] = 4096;
  config["vision_config"] = {{"hidden_size", 48},
                             {"image_size", 64},
                             {"patch_size", 8},
                             {"intermediate_size", 192},
                             {"num_attention_heads", 3},
                             {"num_hidden_layers", 3},
                             {"model_type", "clip_vision_model"}};
  return config;
}

Model build(const Json& config) {
  const HfConfig hf(config, "test config");
  return family_of(hf).build(hf);
}

Features row_of(std::mt19937_64& random, int64_t tokens, bool image) {
  Features row;
  if (image) {
    row.input_ids.assign(64, kImageToken);
    row.media.push_back(random_pixels(random, {1, 3, 64, 64}));
    for (int32_t i = 0; i < 64; ++i) row.media[0].places.push_back(i);
  }
  while (static_cast<int64_t>(row.input_ids.size()) < tokens)
    row.input_ids.push_back(static_cast<int32_t>(random() % 40));
  for (const int32_t id : row.input_ids) row.labels.push_back(id < 40 && random() % 3 != 0 ? id : -100);
  return row;
}

struct Shapes {
  int64_t rows, tokens;
  int micro_batches;
};

void compare(const Model& model, const PlanOptions& plan_options, const RowsOfStep& window, const std::string& name) {
  at::set_num_threads(1);  // as run_ranks() does: a tile is held for each
  JobOptions options{.plan = plan_options, .virtual_devices = true};
  const Plan plan = make_plan(model, options.plan);
  const MemoryForecast forecast =
      rehearse(model, plan, window, {.virtual_devices = true, .save = false, .evaluate = false});
  run_ranks(plan_options.world, [&](Rank& rank) {
    Job job(model, options, rank.data());
    for (int step = 0; step < 2; ++step) {
      job.train(window);
      job.update();
    }
    for (size_t d = 0; d < forecast.devices.size(); ++d) {
      const MemoryFigures found = job.store().devices().blocks[d]->figures();
      const MemoryFigures& said = forecast.devices[d].figures;
      const double ratio = static_cast<double>(said.peak().bytes) / static_cast<double>(found.peak().bytes);
      // What is promised is 5 % over and 2 % under; what differs by a tenth of that has been forgotten somewhere.
      EXPECT_NEAR(ratio, 1.0, 0.005) << name << ", device " << d << ": said " << said.peak().bytes << ", found "
                                     << found.peak().bytes;
      EXPECT_EQ(said.peak_phase(), found.peak_phase()) << name;
    }
  });
}

TEST(Rehearsal, SaysWhatAStepNeeds) {
  Sampled sampled;
  for (const auto& [family, config] : std::vector<std::pair<std::string, Json>>{
           {"qwen2", qwen2_config(false)}, {"qwen2 tied", qwen2_config(true)}, {"llava", wide_llava_config()}}) {
    const Model model = build(config);
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool frozen : {false, true}) {
        if (frozen && family != "llava") continue;
        for (const bool recompute : {true, false}) {
          for (const auto& shape : {Shapes{1, 96, 1}, Shapes{4, 133, 2}, Shapes{2, 500, 1}}) {
            if (!sampled.takes()) continue;
            std::mt19937_64 random(stage + 7);
            RowsOfStep window;
            for (int m = 0; m < shape.micro_batches; ++m) {
              std::vector<Features> rows;
              for (int64_t r = 0; r < shape.rows; ++r)
                rows.push_back(row_of(random, shape.tokens - 11 * r, family == "llava" && r % 2 == 0));
              window.push_back(rows);
            }
            PlanOptions plan{.world = 2,
                             .zero = {stage},
                             .compute = Dtype::kF32,
                             .recompute = recompute,
                             .recompute_vision = recompute};
            if (frozen) plan.frozen = {Component::kVision};
            compare(model, plan, window,
                    fmt::format("{} zero{} {}{} {}x{}", family, stage, frozen ? "frozen " : "",
                                recompute ? "recompute" : "keep", shape.rows, shape.tokens));
          }
        }
      }
    }
  }
}

/// Without instructions for bfloat16, and for float16 anywhere, products take tiles in float32 besides.
TEST(Rehearsal, SaysWhatAStepOfWidenedProductsNeeds) {
  const NativeProducts none(false);
  Sampled sampled;
  for (const auto& [family, config] : std::vector<std::pair<std::string, Json>>{
           {"qwen2", qwen2_config(false)}, {"qwen2 tied", qwen2_config(true)}, {"llava", wide_llava_config()}}) {
    const Model model = build(config);
    for (const Dtype compute : {Dtype::kBF16, Dtype::kF16}) {
      for (const int stage : {0, 3}) {
        for (const bool recompute : {true, false}) {
          for (const auto& shape : {Shapes{4, 133, 2}, Shapes{2, 500, 1}}) {
            if (!sampled.takes()) continue;
            std::mt19937_64 random(stage + 9);
            RowsOfStep window;
            for (int m = 0; m < shape.micro_batches; ++m) {
              std::vector<Features> rows;
              for (int64_t r = 0; r < shape.rows; ++r)
                rows.push_back(row_of(random, shape.tokens - 11 * r, family == "llava" && r % 2 == 0));
              window.push_back(rows);
            }
            compare(model,
                    {.world = 2,
                     .zero = {stage},
                     .compute = compute,
                     .recompute = recompute,
                     .recompute_vision = recompute},
                    window,
                    fmt::format("{} {} zero{} {} {}x{}", family, dtype_name(compute), stage,
                                recompute ? "recompute" : "keep", shape.rows, shape.tokens));
          }
        }
      }
    }
  }
}

TEST(Rehearsal, SaysWhatEveryDeviceNeeds) {
  const Model model = build(wide_llava_config());
  std::mt19937_64 random(5);
  RowsOfStep window;
  for (int m = 0; m < 5; ++m) window.push_back({row_of(random, 150, true), row_of(random, 120, m % 2 == 0)});
  for (const int devices : {2, 3}) {
    for (const bool offload_params : {false, true}) {
      PlanOptions plan{.world = 2, .zero = {offload_params ? 3 : 1}, .compute = Dtype::kF32, .recompute = devices == 2};
      plan.placement = {.num_devices = devices, .offload_params = offload_params, .offload_optimizer = devices == 3};
      for (size_t b = 0; b < model.blocks.size(); ++b) {
        plan.placement.device_of_block.push_back(static_cast<int>(b) * devices / static_cast<int>(model.blocks.size()));
      }
      compare(model, plan, window, fmt::format("{} devices, offload params {}", devices, offload_params));
    }
  }
}

}  // namespace
}  // namespace lockstep
