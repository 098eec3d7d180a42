// Generation on GPUs that are none: the CPU's answers, and no waiting but for what is sampled from.
#include "lockstep/testing/fake_gpu/fake_gpu.h"

#include <random>

#include <gtest/gtest.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/infer/generator.h"
#include "lockstep/infer/test_rows.h"
#include "lockstep/testing/fake_gpu/environment.h"
#include "lockstep/testing/fake_gpu/fake_group.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

class GenerationOnFakeGpus : public testing::Test {
 protected:
  void SetUp() override { use_cuda_library(&fake_cuda_api()); }
  void TearDown() override { use_cuda_library(nullptr); }

  struct Said {
    std::vector<Generated> rows;
    int64_t host_waits = 0;
  };

  /// `gpus` of one rank, blocks over all of them; 0: on the CPU.
  static Said generate(const Model& model, const Rows& prompts, int gpus) {
    Said said;
    RanksOptions on;
    if (gpus > 0) on.device = [](int) { return FakeGpu::name(0); };
    run_ranks(
        1,
        [&](Rank& rank) {
          JobOptions options = inference_job(1, {0});
          for (int i = 0; i < gpus; ++i) options.gpus.push_back(FakeGpu::name(i));
          if (gpus > 1) {
            options.plan.placement.num_devices = gpus;
            for (size_t b = 0; b < model.blocks.size(); ++b) {
              options.plan.placement.device_of_block.push_back(
                  static_cast<int>(b * static_cast<size_t>(gpus) / model.blocks.size()));
            }
          }
          Job job(model, options, rank.data());
          Generator generator(model, job.executor(), rank.control(), /*together=*/false);
          GenerateOptions wanted{.max_new_tokens = 12, .batch_size = 1};
          wanted.collate = Job::collate_options();
          const auto source = dealt_prompts(static_cast<int64_t>(prompts.size()), rank.control(), [&](int64_t row) {
            return std::optional<Features>(prompts[static_cast<size_t>(row)]);
          });
          const auto before = FakeGpu::counts();
          auto rows = generator.run_all(source, wanted);
          said = {std::move(rows), FakeGpu::counts().host_waits - before.host_waits};
        },
        on);
    return said;
  }
};

TEST_F(GenerationOnFakeGpus, GivesTheCpusAnswersAndWaitsForLogitsAlone) {
  for (const bool windows : {false, true}) {
    const Model model = windows ? qwen_vl_model() : llava_model();
    std::mt19937_64 random(5);
    Rows prompts;
    for (int i = 0; i < 3; ++i) {
      prompts.push_back((windows ? random_picture_row : random_row)(random, i != 1));
      prompts.back().labels.clear();
    }
    const Said on_cpu = generate(model, prompts, 0);
    for (const int gpus : {1, 2}) {
      const Said found = generate(model, prompts, gpus);
      ASSERT_EQ(found.rows.size(), on_cpu.rows.size());
      int64_t tokens = 0;
      for (size_t i = 0; i < found.rows.size(); ++i) {
        EXPECT_EQ(found.rows[i].tokens, on_cpu.rows[i].tokens) << "row " << i << " on " << gpus;
        tokens += static_cast<int64_t>(found.rows[i].tokens.size());
      }
      EXPECT_EQ(found.host_waits, tokens) << "one a token; " << gpus << " GPUs" << (windows ? ", windows" : "");
    }
  }
}

}  // namespace
}  // namespace lockstep
