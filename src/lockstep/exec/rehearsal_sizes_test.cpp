// Rehearsals of the sizes that people have (configs/), on this machine's CPU and on GPUs that are not here.
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/exec/rehearsal.h"
#include "lockstep/testing/sampled.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// configs/, and a family that has none there.
std::map<std::string, HfConfig> configs() {
  std::map<std::string, HfConfig> all;
  for (const auto& folder : fs::directory_iterator(fs::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs"))
    all.emplace(folder.path().filename().string(), HfConfig::load(folder.path()));
  const Json llama{{"architectures", {"LlamaForCausalLM"}},
                   {"model_type", "llama"},
                   {"hidden_size", 4096},
                   {"intermediate_size", 14336},
                   {"num_hidden_layers", 32},
                   {"num_attention_heads", 32},
                   {"num_key_value_heads", 8},
                   {"max_position_embeddings", 8192},
                   {"rms_norm_eps", 1e-5},
                   {"tie_word_embeddings", false},
                   {"vocab_size", 128256}};
  all.emplace("Llama-3-8B", HfConfig(llama, "test config"));
  return all;
}

TEST(RehearsalOfRealSizes, Zero3NeverNeedsMoreThanZero2) {
  Sampled sampled;
  for (const auto& [name, config] : configs()) {
    const Family& family = family_of(config);
    const Model model = family.build(config);
    const RowsOfStep window{{family.typical_row ? family.typical_row(config, 1024) : typical_text_row(1024)}};
    for (const bool on_cpu : {true, false}) {
      for (const bool recompute : {true, false}) {
        if (!sampled.takes()) continue;
        SCOPED_TRACE(fmt::format("{}, {}, {}", name, on_cpu ? "CPU" : "GPU", recompute ? "recompute" : "keep"));
        const auto peak_of = [&](int stage) {
          const Plan plan =
              make_plan(model, {.world = 2, .zero = {stage}, .recompute = recompute, .recompute_vision = recompute});
          return rehearse(model, plan, window, {.on_cpu = on_cpu, .transport = on_cpu ? "shm" : "nccl"}).peak();
        };
        EXPECT_LE(peak_of(3), peak_of(2));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
