// The transports against plain arithmetic and against each other: sizes below and above the slots, all dtypes, calls in
// flight.
#include "lockstep/comm/backend.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeed = 20240607;

/// Values that any rank can make for any other, of very different sizes: their f32 sums depend on the order.
Tensor values_of(int rank, int64_t numel, Dtype dtype, uint64_t salt) {
  uint64_t state = kSeed + salt * 1000 + static_cast<uint64_t>(rank);
  std::vector<float> values(static_cast<size_t>(numel));
  for (auto& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto unit = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31F;
    value = (state >> 20) % 4 == 0 ? unit * 3000.0F : unit * 3.0F;
  }
  return to_dtype(from_values(std::span<const float>(values), {numel}), dtype);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

/// ((v0 + v1) + v2) + …, in f32: what reduce_scatter promises.
Tensor rank_order_sum(int world, int64_t numel, Dtype dtype, uint64_t salt) {
  Tensor sum = to_dtype(values_of(0, numel, dtype, salt), Dtype::kF32).clone();
  for (int r = 1; r < world; ++r) sum.add_(to_dtype(values_of(r, numel, dtype, salt), Dtype::kF32));
  return sum;
}

class OverTransports : public testing::TestWithParam<Transport> {
 protected:
  RanksOptions options() const { return {.transport = GetParam(), .patience = std::chrono::seconds(60)}; }
};

INSTANTIATE_TEST_SUITE_P(Backends, OverTransports, testing::Values(Transport::kShm, Transport::kGloo),
                         [](const auto& transport) { return transport.param == Transport::kShm ? "shm" : "gloo"; });

TEST_P(OverTransports, RunsOnWhatWasAskedFor) {
  run_ranks(
      2,
      [&](Rank& rank) {
        EXPECT_EQ(rank.data().backend_name(), GetParam() == Transport::kShm ? "shared memory" : "gloo");
      },
      options());
}

TEST_P(OverTransports, GathersEveryDtypeInRankOrder) {
  using enum Dtype;
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(
        world,
        [&](Rank& rank) {
          for (const Dtype dtype : {kF32, kBF16, kF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool}) {
            const int64_t numel = 1000 + world;
            const Tensor whole = zeros({world * numel}, dtype);
            rank.data().all_gather(whole, values_of(rank.id(), numel, dtype, 1), "gather").wait();
            for (int r = 0; r < world; ++r) {
              EXPECT_TRUE(same_bits(whole.narrow(0, r * numel, numel), values_of(r, numel, dtype, 1)))
                  << dtype_name(dtype) << " part " << r << " of " << world;
            }
          }
        },
        options());
  }
}

TEST_P(OverTransports, GathersInPlaceAndBeyondTheSlots) {
  for (const int64_t numel : {int64_t{0}, int64_t{1}, int64_t{1} << 20, (int64_t{7} << 20) + 3}) {
    run_ranks(
        2,
        [&](Rank& rank) {
          const Tensor whole = zeros({2 * numel}, Dtype::kF32);
          const Tensor mine = whole.narrow(0, rank.id() * numel, numel);
          mine.fill_(rank.id() + 1);
          rank.data().all_gather(whole, mine, "in place").wait();
          EXPECT_EQ(whole.eq(1).sum().item<int64_t>(), numel);
          EXPECT_EQ(whole.narrow(0, numel, numel).eq(2).sum().item<int64_t>(), numel);
        },
        options());
  }
}

TEST_P(OverTransports, ReducesInRankOrderBitForBit) {
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(
        world,
        [&](Rank& rank) {
          uint64_t salt = 0;
          for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
            for (const int64_t numel : {int64_t{1}, int64_t{15}, int64_t{2049}, int64_t{600000}}) {
              const Tensor expected =
                  rank_order_sum(world, numel * world, dtype, ++salt).narrow(0, rank.id() * numel, numel);
              const Tensor staged = values_of(rank.id(), numel * world, dtype, salt), before = staged.clone();
              const Tensor sum = full({numel}, 7, Dtype::kF32);
              rank.data().reduce_scatter(sum, staged, false, "reduce").wait();
              EXPECT_TRUE(same_bits(sum, expected)) << dtype_name(dtype) << " " << numel << " of " << world;
              rank.data().reduce_scatter(sum, staged, true, "reduce again").wait();
              EXPECT_TRUE(same_bits(sum, expected.add(expected))) << dtype_name(dtype) << " accumulated";
              EXPECT_TRUE(same_bits(staged, before));
            }
          }
        },
        options());
  }
}

TEST_P(OverTransports, ReducesFromStagingWhileOthersAreInFlight) {
  run_ranks(
      3,
      [&](Rank& rank) {
        constexpr int64_t kNumel = 70000;
        ASSERT_GE(rank.data().max_staging_bytes(), 3 * kNumel * 2);
        std::deque<std::pair<Pending, Tensor>> pending;
        std::deque<Tensor> expected;
        const auto check_oldest = [&] {
          pending.front().first.wait();
          EXPECT_TRUE(same_bits(pending.front().second, expected.front()));
          pending.pop_front();
          expected.pop_front();
        };
        for (uint64_t i = 0; i < 30; ++i) {
          const Tensor staged = rank.data().staging(3 * kNumel, scalar_type_of(Dtype::kBF16));
          staged.copy_(values_of(rank.id(), 3 * kNumel, Dtype::kBF16, i));
          const Tensor sum = zeros({kNumel}, Dtype::kF32);
          pending.emplace_back(rank.data().reduce_scatter(sum, staged, false, "staged"), sum);
          expected.push_back(
              rank_order_sum(3, 3 * kNumel, Dtype::kBF16, i).narrow(0, rank.id() * kNumel, kNumel).clone());
          if (pending.size() > 2) check_oldest();
        }
        while (!pending.empty()) check_oldest();
      },
      options());
}

TEST_P(OverTransports, ManyCallsInFlightNeverDeadlock) {
  run_ranks(
      4,
      [&](Rank& rank) {
        std::mt19937_64 random(kSeed);  // the same on every rank: the program is the protocol
        std::deque<std::pair<Pending, Tensor>> pending;
        std::deque<Tensor> expected;
        for (uint64_t i = 0; i < 60; ++i) {
          const int64_t numel = static_cast<int64_t>(random() % 300000) + 1;
          if (random() % 2 == 0) {
            const Tensor whole = zeros({4 * numel}, Dtype::kF32);
            pending.emplace_back(rank.data().all_gather(whole, full({numel}, rank.id() + 1, Dtype::kF32), "gather"),
                                 whole);
            Tensor wanted = zeros({4, numel}, Dtype::kF32);
            for (int64_t r = 0; r < 4; ++r) wanted.select(0, r).fill_(static_cast<double>(r + 1));
            expected.push_back(wanted);
          } else {
            const Tensor sum = zeros({numel}, Dtype::kF32);
            const Tensor staged = full({4 * numel}, static_cast<double>(rank.id() * 10), Dtype::kBF16);
            pending.emplace_back(rank.data().reduce_scatter(sum, staged, false, "reduce"), sum);
            expected.push_back(full({numel}, 60, Dtype::kF32));
          }
          if (random() % 8 == 0) rank.data().barrier("now and then");
          while (pending.size() > 25) {  // some finish out of order
            const size_t which = random() % 2 == 0 ? 0 : pending.size() - 1;
            pending[which].first.wait();
            EXPECT_TRUE(same_bits(pending[which].second, expected[which]));
            pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
            expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(which));
          }
        }
      },
      options());
}

TEST_P(OverTransports, ReducesSmallValuesInRankOrder) {
  run_ranks(
      4,
      [&](Rank& rank) {
        const std::vector<double> parts{1e16, 1.0, -1e16, 1.0};  // in rank order: 1; in another: 2 or 0
        const Tensor sum = full({3}, parts[static_cast<size_t>(rank.id())], Dtype::kF64);
        rank.data().all_reduce_sum(sum, "sum");
        EXPECT_EQ(sum.select(0, 2).item<double>(), ((1e16 + 1.0) - 1e16) + 1.0);
        const Tensor top = full({2}, rank.id() == 2 ? 5 : -1, Dtype::kI64);
        rank.data().all_reduce_max(top, "max");
        EXPECT_EQ(top.sum().item<int64_t>(), 10);
        const Tensor word = full({100000}, rank.id(), Dtype::kBF16);
        rank.data().broadcast(word, 3, "broadcast");
        EXPECT_EQ(word.eq(3).sum().item<int64_t>(), 100000);
      },
      options());
}

TEST_P(OverTransports, AllReduceKeepsNotANumberOnEveryRank) {
  run_ranks(
      2,
      [&](Rank& rank) {
        const Tensor value = full({1}, rank.id() == 1 ? std::nan("") : 1.0, Dtype::kF64);
        rank.data().all_reduce_max(value, "max");
        EXPECT_TRUE(std::isnan(value.item<double>()));
      },
      options());
}

TEST_P(OverTransports, GathersTextsOfAnyLength) {
  run_ranks(
      3,
      [&](Rank& rank) {
        const std::string mine(static_cast<size_t>(rank.id()) * 100000, static_cast<char>('a' + rank.id()));
        const auto all = rank.control().all_gather_bytes(mine, "texts");
        ASSERT_EQ(all.size(), 3U);
        EXPECT_EQ(all[0], "");
        EXPECT_EQ(all[1], std::string(100000, 'b'));
        EXPECT_EQ(all[2], std::string(200000, 'c'));
        EXPECT_EQ(rank.control().all_gather_bytes("", "nothing"), std::vector<std::string>(3));
      },
      options());
}

}  // namespace
}  // namespace lockstep
