#include "lockstep/session/rehearsed_rows.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/test_folder.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/test_processor.h"

namespace lockstep {
namespace {

RehearsedRows typical(const char* config, int64_t tokens) {
  return RehearsedRows::typical(
      ModelFolder(std::filesystem::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs" / config), tokens);
}

TEST(RehearsedRows, RowsThatWaitHoldTheValuesOfTheirMedia) {
  const int64_t ahead = LoaderOptions{}.prefetch + 1;  // one in the making
  EXPECT_EQ(typical("Qwen2.5-7B", 1000).waiting_bytes(3), ahead * 3 * 1000 * 8) << "ids and labels";
  constexpr int64_t kPicture = int64_t{3} * 336 * 336 * 4;
  const int64_t waiting = typical("LLaVA-1.5-7B", 1000).waiting_bytes(2);
  EXPECT_GE(waiting, ahead * 2 * kPicture);
  EXPECT_LE(waiting, ahead * 2 * (kPicture + 1000 * 16));
}

/// Rows of one token.
class OneToken final : public test::FeaturesProcessor {
 public:
  Features train_features(const Sample&, const ProcessOptions&) const override {
    Features row;
    row.input_ids = {1};
    row.labels = {1};
    return row;
  }
};

class RehearsedRowsOfData : public InTestFolder {};

/// A batch takes the first rank's rows first: where there are too few for all ranks, that one has more than its share.
TEST_F(RehearsedRowsOfData, AreAsManyAsTheLoaderGivesTheFirstRank) {
  constexpr int kRows = 12, kWorld = 2;
  const auto file = folder_ / "rows.jsonl";
  std::ofstream out(file);
  for (int i = 0; i < kRows; ++i) out << fmt::format("{{\"query\": \"{}\"}}\n", i);
  out.close();
  const Dataset data({file.string()}, {});
  const OneToken processor;
  const auto rows = RehearsedRows::of(data, processor, {}, kWorld);
  EXPECT_EQ(rows.share(), kRows / kWorld);
  for (const int64_t batch : {1, 4, 5, 8, 12, 20}) {
    Loader loader(data, processor, {.batch_size = batch, .rank = 0, .world = kWorld, .num_workers = 0});
    int64_t most = 0, all = 0;
    while (const auto loaded = loader.next()) {
      most = std::max(most, static_cast<int64_t>(loaded->rows.size()));
      all += static_cast<int64_t>(loaded->rows.size());
    }
    EXPECT_EQ(std::ssize(rows.step(batch, 1).front()), most) << batch;
    EXPECT_EQ(rows.waiting_bytes(batch), 8 * std::min(all, (LoaderOptions{}.prefetch + 1) * batch)) << batch;
  }
}

/// As many tokens as a row has ids, or words of a text.
class CountedTokens final : public test::FeaturesProcessor {
 public:
  Features train_features(const Sample& sample, const ProcessOptions&) const override {
    Features row;
    row.input_ids = sample.input_ids;
    if (row.input_ids.empty()) row.input_ids.assign(2, 1);
    row.labels = row.input_ids;
    return row;
  }
};

/// Pieces of ids are counted in tokens, whole rows in bytes.
TEST_F(RehearsedRowsOfData, LookAtPiecesThatAreAsLongAsOneMayBe) {
  const auto file = folder_ / "rows.jsonl";
  std::ofstream out(file);
  for (int i = 0; i < 200; ++i) out << fmt::format("{{\"query\": \"{}\"}}\n", std::string(500, 'a'));
  out << R"({"input_ids": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]})"
      << "\n";
  out.close();
  const Dataset whole({file.string()}, {});
  std::vector<RowPiece> pieces;
  for (int64_t row = 0; row < 200; ++row) pieces.push_back({.row = row});
  pieces.push_back({.row = 200, .begin = 0, .end = 7});
  pieces.push_back({.row = 200, .begin = 7, .end = 10});
  const Dataset data = Dataset::in_pieces(whole, std::move(pieces));
  const CountedTokens processor;
  const auto longest = longest_rows(
      data, [&](const Sample& sample) { return processor.train_features(sample, {}); }, 1);
  ASSERT_EQ(longest.size(), 1U);
  EXPECT_EQ(longest[0].input_ids.size(), 7U);
}

}  // namespace
}  // namespace lockstep
