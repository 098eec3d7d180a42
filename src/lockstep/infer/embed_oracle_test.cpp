// Embeddings against those that transformers recorded, for every family there is (tests/fixtures/oracle).
#include <filesystem>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/executor.h"
#include "lockstep/infer/embedder.h"
#include "lockstep/infer/test_rows.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the rows of these tests
namespace fs = std::filesystem;

/// Embeds on `world` ranks under ZeRO-3, `batch_size` rows at a time; by row.
std::map<int64_t, RowEmbedding> embed(const fs::path& checkpoint, const std::vector<Features>& features, int world,
                                      int64_t batch_size, const EmbedOptions& options) {
  const ListProcessor processor(features, {});
  const Dataset rows = RowsFile(features.size()).open();
  std::map<int64_t, RowEmbedding> all;
  std::mutex mutex;
  run_ranks(world, [&](Rank& rank) {
    const HfConfig config = HfConfig::load(checkpoint);
    const Model model = family_of(config).build(config);
    const Weights weights = Weights::open(checkpoint);
    const Plan plan = make_plan(model, {.world = world, .zero = {3}, .compute = Dtype::kF32, .training = false});
    ParamStore store(plan, rank.id(), Devices::one("cpu"));
    store.load(weights, KeyMap::match(model, weights));
    Executor executor(model, plan, store, rank.data());
    Loader loader(rows, processor,
                  {.batch_size = batch_size, .rank = rank.id(), .world = world, .shuffle = false, .prompts = true});
    Embedder(model, executor, rank.control(), plan.gathers())
        .run(loader, options,
             {.embedded =
                  [&](const RowEmbedding& row) {
                    const std::lock_guard lock(mutex);
                    all[row.row] = row;
                  },
              .skipped = [](const SkippedRow& row) { FAIL() << row.why; }});
  });
  return all;
}

void expect_near(const std::vector<float>& got, const Tensor& wanted) {
  const Tensor flat = wanted.contiguous();
  ASSERT_EQ(static_cast<int64_t>(got.size()), flat.numel());
  const auto* values = flat.const_data_ptr<float>();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(double{got[i]} - double{values[i]}));
  EXPECT_LE(worst, 1e-4);
}

/// Every recorded case of a folder; returns how many there were.
int expect_folder(const fs::path& folder) {
  const Weights reference = Weights::open(folder / "reference.safetensors");
  const HfConfig config = HfConfig::load(folder / "checkpoint");
  int compared = 0;
  for (const auto& spec : reference.specs()) {
    const std::string suffix = "/out/pooled";
    if (!spec.name.ends_with(suffix)) continue;
    SCOPED_TRACE(folder.string() + " " + spec.name);
    const std::string name = spec.name.substr(0, spec.name.size() - suffix.size());
    HfInputs inputs;
    for (const auto& other : reference.specs()) {
      if (other.name.starts_with(name + "/in/"))
        inputs[other.name.substr(name.size() + 4)] = reference.read(other.name);
    }
    const auto rows = family_of(config).rows_of_hf(config, inputs);
    const Tensor wanted = reference.read(spec.name);
    const bool has_inputs = reference.find(name + "/out/inputs_embeds") != nullptr;
    for (const auto& [world, batch_size] : {std::pair{1, 8}, {2, 1}, {3, 2}}) {
      const auto got = embed(folder / "checkpoint", rows, world, batch_size, {});
      EXPECT_EQ(got.size(), rows.size());
      for (const auto& [row, embedding] : got) expect_near(embedding.values, wanted[row]);
    }
    if (has_inputs) {
      const Tensor embeds = reference.read(name + "/out/inputs_embeds");
      const Tensor mask = inputs.at("attention_mask").to(at::kBool);
      for (const auto& [row, merged] : embed(folder / "checkpoint", rows, 2, 2, {.extent = Extent::kInputs})) {
        expect_near(merged.values, embeds[row].index_select(0, mask[row].nonzero().flatten()));
      }
    }
    ++compared;
  }
  return compared;
}

TEST(EmbedOracle, EveryFamilyGivesWhatTransformersRecorded) {
  int compared = 0;
  for (const auto& set : fs::directory_iterator(fs::path(LOCKSTEP_FIXTURES) / "oracle")) {
    for (const auto& family : fs::directory_iterator(set)) {
      if (!fs::exists(family.path() / "checkpoint")) continue;
      if (family.path().filename().string().starts_with("train_")) continue;
      if (fs::exists(family.path() / "reference.safetensors")) compared += expect_folder(family.path());
    }
  }
  EXPECT_GE(compared, 12);
}

}  // namespace
}  // namespace lockstep
