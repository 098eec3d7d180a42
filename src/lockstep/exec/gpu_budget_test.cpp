// How many kernels a decoder layer queues on a GPU: what a step costs there beside its bytes and operations. Counted on the fake
// GPU, which runs an op of LibTorch, a kernel of the program's own and a copy each as one call, as CUDA does.
#include <iostream>
#include <optional>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/exec/step_work.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/tensor/make.h"
#include "lockstep/testing/fake_gpu/environment.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/fake_group.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep::test {
namespace {

/// A language model of sizes for which a GPU has flash attention, with matrices whose gradients are not small.
Model text_model(int64_t layers) {
  const HfConfig config({{"architectures", {"Qwen2ForCausalLM"}},
                         {"model_type", "qwen2"},
                         {"hidden_size", 320},
                         {"intermediate_size", 384},
                         {"num_hidden_layers", layers},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 4},
                         {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-5},
                         {"tie_word_embeddings", false},
                         {"vocab_size", kVocab}},
                        "test config");
  return family_of(config).build(config);
}

enum class Work { kForward, kTraining, kToken };

/// One more token for each of a few answers, whose prompts of so many tokens have been read.
class Answers {
 public:
  Answers(Job& job, const Model& model, int64_t rows, int64_t tokens) : job_(job), cache_(model.dims.layers, rows) {
    for (int64_t slot = 0; slot < rows; ++slot) {
      cache_.open(slot, tokens + 8);
      pass(1, tokens, slot);
      cache_.start(slot);
    }
  }
  void next() { pass(cache_.slots(), 1, -1); }

 private:
  void pass(int64_t rows, int64_t tokens, int64_t slot) {
    const OnDevice host(job_.store().devices().host);
    std::vector<int64_t> ids(static_cast<size_t>(rows * tokens), 3), positions;
    for (int64_t i = 0; i < rows * tokens; ++i) positions.push_back(i % tokens);
    job_.executor().forward(
        {{"input_ids", from_values(ids, {rows, tokens})}, {"positions", from_values(positions, {rows, tokens})}},
        {.logits = LogitsWanted::kLast, .cache = &cache_, .slot = slot}, Modality::kText, Modality::kText);
  }
  Job& job_;
  KvCache cache_;
};

int64_t launched(int64_t layers, Dtype dtype, Work work) {
  int64_t count = 0;
  RanksOptions on;
  on.device = [](int) { return FakeGpu::name(0); };
  run_ranks(
      1,
      [&](Rank& rank) {
        const Model model = text_model(layers);
        JobOptions options{.plan = {.compute = dtype, .training = work == Work::kTraining, .recompute = false}};
        options.gpus = {FakeGpu::name(0)};
        Job job(model, options, rank.data());
        std::mt19937_64 random(5);
        const RowsOfStep window{{random_row(random, /*with_image=*/false)}};
        std::optional<Answers> answers;
        if (work == Work::kToken) answers.emplace(job, model, /*rows=*/3, /*tokens=*/9);
        const auto once = [&] {
          if (answers) return answers->next();
          if (work == Work::kTraining) return (void)job.train(window);
          const OnDevice host(job.store().devices().host);
          Batch batch = collate(window[0], Job::collate_options());
          batch.flow.erase("labels");
          job.executor().forward(std::move(batch.flow), {.logits = LogitsWanted::kLast}, batch.modalities,
                                 batch.modalities);
        };
        once();  // what is made once is there
        const int64_t before = FakeGpu::counts().launches;
        once();
        count = FakeGpu::counts().launches - before;
      },
      on);
  return count;
}

/// Of one layer: what a model of one more queues more.
int64_t of_a_layer(Dtype dtype, Work work) { return launched(3, dtype, work) - launched(2, dtype, work); }

class GpuBudget : public testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override { use_cuda_library(&fake_cuda_api()); }
  void TearDown() override { use_cuda_library(nullptr); }
};

TEST_P(GpuBudget, OfADecoderLayer) {
  const int64_t forward = of_a_layer(GetParam(), Work::kForward);
  const int64_t backward = of_a_layer(GetParam(), Work::kTraining) - forward;
  EXPECT_LE(forward, 12);
  EXPECT_LE(backward, 22);
  std::cout << "a layer queues " << forward << " kernels forward, " << backward << " backward\n";
}

TEST_P(GpuBudget, OfATokenOfAnswers) {
  const int64_t token = of_a_layer(GetParam(), Work::kToken);
  EXPECT_LE(token, 8) << "for all answers together";
  std::cout << "a layer queues " << token << " kernels for a token of all answers\n";
}

/// Sizes of a layer of Qwen2.5-7B, and a row.
constexpr double kTokens = 4096, kHidden = 3584, kInner = 18944, kHeads = 3584 + 1024;

/// What a layer must read and write, in bytes of bfloat16, when a sum of two goes with the norm behind it, gradients of weights
/// are written once in float32, and all else is read and written once by what makes and what takes it.
double least_bytes(bool backward) {
  struct Product {
    double in, out;
  };
  double numbers = 0, weights = 0;
  for (const auto& [in, out] :
       {Product{kHidden, kHeads}, {kHidden, kHidden}, {kHidden, 2 * kInner}, {kInner, kHidden}}) {
    const double rows = kTokens * (in + out);
    weights += in * out;
    numbers += in * out + (backward ? 2 * rows : rows);
  }
  const double norms = 2 * 4 * kHidden, turned = 2 * kHeads;
  if (!backward) return 2 * (numbers + kTokens * (norms + turned + kHeads + kHidden + 3 * kInner));
  return 2 * (numbers + kTokens * (norms + turned + 2 * (kHeads + kHidden) + 5 * kInner + kHeads)) + 4 * weights;
}

StepWork rehearsed_layer(bool training) {
  const auto work = [&](int64_t layers) {
    const HfConfig config({{"architectures", {"Qwen2ForCausalLM"}},
                           {"model_type", "qwen2"},
                           {"hidden_size", 3584},
                           {"intermediate_size", 18944},
                           {"num_hidden_layers", layers},
                           {"num_attention_heads", 28},
                           {"num_key_value_heads", 4},
                           {"max_position_embeddings", 32768},
                           {"rms_norm_eps", 1e-6},
                           {"tie_word_embeddings", false},
                           {"vocab_size", 152064}},
                          "test config");
    const Model model = family_of(config).build(config);
    const Plan plan = make_plan(model, {.compute = Dtype::kBF16, .training = training, .recompute = false});
    return work_of_step(model, plan, {{typical_text_row(static_cast<int64_t>(kTokens))}});
  };
  StepWork layer = difference(work(2), work(1));
  layer.erase("adamw");
  return layer;
}

TEST(GpuBytes, OfADecoderLayerAreNearTheLeast) {
  const KernelWork forward = sum_of(rehearsed_layer(/*training=*/false));
  const KernelWork all = sum_of(rehearsed_layer(/*training=*/true));
  const double least_forward = least_bytes(false), least = least_forward + least_bytes(true);
  EXPECT_EQ(forward.calls, 11) << "as the fake GPU counts them";
  EXPECT_EQ(all.calls - forward.calls, 21) << "as the fake GPU counts them";
  EXPECT_LE(forward.bytes, 1.25 * least_forward);
  EXPECT_LE(all.bytes, 1.25 * least);
  EXPECT_GT(all.bytes, least) << "less than must be: something is not counted";
  std::cout << "a layer moves " << forward.bytes / least_forward << " of the least bytes forward, " << all.bytes / least
            << " in all\n";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GpuBudget, testing::Values(Dtype::kF32, Dtype::kBF16));

}  // namespace
}  // namespace lockstep::test
