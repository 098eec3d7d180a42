// Several adapters over one base: each row of a batch is computed with the one that it chooses, beside rows of the others.
#include <optional>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/executor.h"
#include "lockstep/exec/test_adapters.h"
#include "lockstep/exec/test_job.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

/// Of rows without pictures: [rows, tokens, vocabulary].
Tensor logits_of(const Model& model, std::vector<std::shared_ptr<const AdapterLayout>> layouts,
                 const std::optional<AdapterRows>& chosen) {
  Tensor logits;
  run_ranks(1, [&](Rank& rank) {
    JobOptions options{.plan = {.compute = Dtype::kF32, .training = false}};
    if (!layouts.empty()) options.plan.adapters = layouts[0];
    for (size_t i = 1; i < layouts.size(); ++i) options.plan.further_adapters.push_back(layouts[i]);
    Job job(model, options, rank.data());
    std::mt19937_64 random(3);
    std::vector<Features> rows(5);
    for (auto& row : rows) {
      row = random_row(random, false);
      row.labels.clear();
    }
    Batch batch = collate(rows, Job::collate_options());
    const Flow out = job.executor().forward(batch.flow, {.logits = LogitsWanted::kAll, .adapter_rows = chosen},
                                            batch.modalities, batch.modalities);
    logits = out["logits"].clone();
  });
  return logits;
}

TEST(RowAdapters, ARowIsComputedWithTheOneThatItChooses) {
  const Model model = llava_model();
  const auto kinds = adapter_kinds();
  std::vector<std::shared_ptr<const AdapterLayout>> layouts;
  for (const size_t kind : {0, 2, 1}) {  // LoRA, DoRA with a table, LoRA with a head and a table
    AdapterLayout layout = *adapters_over(model, kinds[kind]);
    layout.name = "abc"[layouts.size()];
    layouts.push_back(std::make_shared<const AdapterLayout>(std::move(layout)));
  }
  std::vector<Tensor> alone{logits_of(model, {}, std::nullopt)};
  for (const auto& layout : layouts) alone.push_back(logits_of(model, {layout}, std::nullopt));
  const std::vector<size_t> takes{1, 3, 0, 2, 1};  // 0: none
  AdapterRows chosen;
  for (size_t k = 0; k < layouts.size(); ++k) {
    chosen.adapters.push_back(k);
    std::vector<int64_t> own;
    for (const size_t one : takes) own.push_back(one == k + 1 ? 1 : 0);
    chosen.rows.push_back(to_dtype(from_values(own, {5}), Dtype::kBool));
  }
  const Tensor mixed = logits_of(model, layouts, chosen);
  for (size_t row = 0; row < takes.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    for (size_t k = 0; k < alone.size(); ++k) {
      const Tensor wanted = alone[k].select(0, at);
      const double apart = mixed.select(0, at).sub(wanted).abs().max().div(wanted.abs().max()).item<double>();
      EXPECT_EQ(apart < 1e-5, k == takes[row]) << "row " << row << " with " << k << ": " << apart;
    }
  }
  EXPECT_TRUE(logits_of(model, layouts, AdapterRows{.adapters = {1}, .rows = {}}).equal(alone[2])) << "one for all";
  EXPECT_TRUE(logits_of(model, layouts, AdapterRows{}).equal(alone[0])) << "none";
  EXPECT_THROW(logits_of(model, layouts, std::nullopt), std::exception) << "which?";
}

}  // namespace
}  // namespace lockstep
