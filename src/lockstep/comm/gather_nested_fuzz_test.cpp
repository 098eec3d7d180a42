// Random nested structures over 2 to 4 ranks: what comes back is what every rank gave, in order; where ranks truly
// disagree, all get one error that shows both structures and who holds them; nobody hangs. LOCKSTEP_FUZZ_STRUCTURES
// (default 10000) and LOCKSTEP_FUZZ_SEED choose length and start.
#include <cmath>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/comm/gather_nested.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

/// A random value whose structure depends on `shape` alone and whose contents and first dimensions on `content` too.
class Maker {
 public:
  Maker(uint64_t shape, uint64_t content) : shape_(shape), content_(content) {}

  Value make(int depth = 0) {
    constexpr int kDeepest = 4;
    switch (shape_() % (depth < kDeepest ? 10 : 6)) {
      case 0:
        return Value();
      case 1:
        return content_() % 2 == 0;
      case 2:
        return static_cast<int64_t>(content_());
      case 3:
        return static_cast<double>(content_() % 1000) / 8;
      case 4:
        return text();
      case 5:
      case 6:
        return tensor();
      case 7:
        return uniform_list(depth);
      case 8: {
        Value::List items(shape_() % 4);
        for (auto& item : items) item = make(depth + 1);
        return Value::Tuple{std::move(items)};
      }
      default: {
        Value::Dict entries;
        for (size_t i = shape_() % 4; i > 0; --i) {
          entries.emplace_back("key \"" + std::to_string(i) + "]", make(depth + 1));
        }
        return entries;
      }
    }
  }

 private:
  std::string text() {
    std::string out(content_() % 12, ' ');
    for (char& c : out) c = static_cast<char>(content_());  // any bytes
    return out;
  }
  Tensor tensor() {
    static constexpr std::array kDtypes{Dtype::kF32, Dtype::kBF16, Dtype::kI64, Dtype::kU8, Dtype::kBool};
    const Dtype dtype = kDtypes[shape_() % kDtypes.size()];
    Shape sizes(shape_() % 4);
    for (auto& size : sizes) size = static_cast<int64_t>(shape_() % 3);
    if (!sizes.empty()) sizes[0] = static_cast<int64_t>(content_() % 4);  // ragged, and sometimes empty
    return full(sizes, static_cast<double>(content_() % 2), dtype);
  }
  /// Items alike; how many, each rank decides.
  Value uniform_list(int depth) {
    const uint64_t item = shape_();
    Value::List items(content_() % 4);
    for (auto& one : items) one = Maker(item, content_()).make(std::max(depth + 1, 3));
    return items;
  }

  std::mt19937_64 shape_, content_;
};

bool same(const Value& a, const Value& b) {
  const auto all_same = [](const Value::List& x, const Value::List& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  if (a.tensor() != nullptr && b.tensor() != nullptr) {
    return dtype_of(*a.tensor()) == dtype_of(*b.tensor()) && a.tensor()->equal(*b.tensor());
  }
  if (a.list() != nullptr && b.list() != nullptr) return all_same(*a.list(), *b.list());
  if (a.tuple() != nullptr && b.tuple() != nullptr) return all_same(a.tuple()->items, b.tuple()->items);
  if (a.dict() != nullptr && b.dict() != nullptr) {
    return std::equal(a.dict()->begin(), a.dict()->end(), b.dict()->begin(), b.dict()->end(),
                      [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
  }
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
  if (a.integer() != nullptr && b.integer() != nullptr) return *a.integer() == *b.integer();
  if (a.number() != nullptr && b.number() != nullptr) return *a.number() == *b.number();
  if (a.boolean() != nullptr && b.boolean() != nullptr) return *a.boolean() == *b.boolean();
  return a.is_none() && b.is_none();
}

/// Another structure than `value`, whatever it is.
Value spoilt(const Value& value, uint64_t how) {
  if (how % 3 == 0) return Value::Tuple{{value, Value()}};
  if (how % 3 == 1) return Value::Dict{{"metadata", value}};
  return value.is_none() ? Value("something") : Value();
}

struct Case {
  uint64_t shape, content, how;
  int odd;  // the rank that returns something else; -1: none

  Value of(int rank) const {
    const Value usual = Maker(shape, content + static_cast<uint64_t>(rank)).make();
    return rank == odd ? spoilt(usual, how) : usual;
  }
};

void check_case(Rank& rank, const Case& one) {
  if (one.odd < 0) {
    const auto all = gather_nested(rank.control(), one.of(rank.id()), "evaluation");
    ASSERT_EQ(all.size(), static_cast<size_t>(rank.size()));
    for (int from = 0; from < rank.size(); ++from) {
      ASSERT_TRUE(same(all[static_cast<size_t>(from)], one.of(from))) << one.of(from).structure();
    }
    return;
  }
  try {
    gather_nested(rank.control(), one.of(rank.id()), "evaluation");
    FAIL() << one.of(0).structure() << " was taken for " << one.of(1).structure();
  } catch (const CollectiveError& error) {
    const std::string text = error.what(), who = "rank " + std::to_string(one.odd) + ": ";
    ASSERT_NE(text.find(who + one.of(one.odd).structure()), std::string::npos) << text;
    ASSERT_NE(text.find(one.of(one.odd == 0 ? 1 : 0).structure()), std::string::npos) << text;
  }
}

TEST(GatherNestedFuzz, RandomStructuresComeBackWholeOrAreRefusedByName) {
  const Env env = Env::process();
  const double scale = std::stod(env.text("LOCKSTEP_TEST_SCALE").value_or("1"));
  const int64_t total = env.integer("LOCKSTEP_FUZZ_STRUCTURES").value_or(std::llround(10000 * scale));
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261121));
  std::cout << "fuzz: " << total << " structures, seed " << seed << std::endl;
  for (int world = 2; world <= 4; ++world) {
    run_ranks(world, [&](Rank& rank) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(world));
      for (int64_t i = 0; i < total / 3 + 1; ++i) {
        const Case one{.shape = random(),
                       .content = random(),
                       .how = random(),
                       .odd = random() % 4 == 0 ? static_cast<int>(random() % static_cast<uint64_t>(world)) : -1};
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(world) + " ranks, case " +
                     std::to_string(i));
        check_case(rank, one);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
