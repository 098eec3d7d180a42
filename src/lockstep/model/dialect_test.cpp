#include "lockstep/model/dialect.h"

#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Dialect, AStarIsOnePartOfANameAndTheRestAtTheEnd) {
  const Dialect dialect{"published",
                        {{"tower.layer.*.q_proj.*", "vit.layers.*.attn.qkv.*", stacked(0, 3, 4)},
                         {"tower.layer.*.*", "vit.layers.*.*"},
                         {"head.*", "output.*"},
                         {"norm", "final_norm"}}};
  EXPECT_EQ(stored_part(dialect, "tower.layer.11.q_proj.weight").name, "vit.layers.11.attn.qkv.weight");
  EXPECT_EQ(stored_part(dialect, "tower.layer.11.q_proj.weight").rows, (StoredRows{12, 0, 4}));
  EXPECT_EQ(stored_part(dialect, "tower.layer.11.mlp.fc1.weight").name, "vit.layers.11.mlp.fc1.weight");
  EXPECT_TRUE(stored_part(dialect, "tower.layer.11.mlp.fc1.weight").rows.whole());
  EXPECT_EQ(stored_part(dialect, "head.weight").name, "output.weight");
  EXPECT_EQ(stored_part(dialect, "norm").name, "final_norm");
  for (const char* untouched : {"header.weight", "head.", "norm.weight", "tower.layer..x", "a.head.weight"}) {
    EXPECT_EQ(stored_part(dialect, untouched).name, untouched);
  }
}

TEST(Dialect, AModuleIsCalledByTheRuleForAllThatIsInIt) {
  const Dialect dialect{"published",
                        {{"tower.layer.*.q_proj.*", "vit.layers.*.qkv.*", stacked(0, 3, 4)},
                         {"tower.layer.*.*", "vit.layers.*.*"},
                         {"projector.*", "mlp1.*"}}};
  EXPECT_EQ(module_name(dialect, "tower.layer.3"), "vit.layers.3");
  EXPECT_EQ(module_name(dialect, "projector"), "mlp1");
  EXPECT_EQ(module_name(dialect, "llm.layers.3"), "llm.layers.3");
}

TEST(Dialect, AFilesTensorHoldsWholeGroups) {
  EXPECT_EQ((StoredPart{"qkv", stacked(1, 3, 8)}.whole_of({8, 5})), (Shape{24, 5}));
  EXPECT_EQ((StoredPart{"wqkv", {.group = 10, .before = 0, .own = 6}}.whole_of({12, 5})), (Shape{20, 5}));
  EXPECT_EQ((StoredPart{"whole", {}}.whole_of({7})), (Shape{7}));
}

/// The tensors that one of a file is made of, and a slice of each read back element by element.
TEST(Dialect, PiecesOfAnySliceAreWhereTheRowsLie) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto some = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int round = 0; round < 200; ++round) {
    const int64_t groups = some(4), columns = some(5), before = some(6) - 1, own = some(6), after = some(4) - 1;
    const StoredRows rows{.group = before + own + after, .before = before, .own = own};
    const Shape shape = columns == 1 && round % 2 == 0 ? Shape{groups * own} : Shape{groups * own, columns};
    const int64_t numel = groups * own * columns;
    const int64_t begin = std::uniform_int_distribution<int64_t>(0, numel)(random);
    const int64_t end = std::uniform_int_distribution<int64_t>(begin, numel)(random);
    int64_t next = begin;
    for_each_piece(rows, shape, begin, end, [&](int64_t there, int64_t here, int64_t count) {
      ASSERT_EQ(here, next);
      ASSERT_GT(count, 0);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = (here + i) / columns, column = (here + i) % columns;
        const int64_t row_there = row / own * rows.group + before + row % own;
        ASSERT_EQ(there + i, row_there * columns + column);
      }
      next = here + count;
    });
    EXPECT_EQ(next, end);
  }
}

}  // namespace
}  // namespace lockstep
