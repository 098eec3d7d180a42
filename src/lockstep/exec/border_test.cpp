// Incident I2 inside one process: a block that makes a tensor on the default device, as hand-written models do.
#include "lockstep/exec/border.h"

#include <memory>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/exec/executor.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// hidden := ids as numbers.
class Source final : public Block {
 public:
  explicit Source(bool strays) : Block("source", Component::kLlm, Modality::kText), strays_(strays) {
    param("scale", {1});
    reads({"input_ids"});
    writes({"hidden"});
  }
  Flow forward(const Params& params, const Flow& in, const Context&) const override {
    const OnDevice scope(strays_ ? DeviceMemory::host() : DeviceMemory::current());
    return {{"hidden", to_dtype(in["input_ids"], Dtype::kF32).mul(params["scale"])}};
  }

 private:
  bool strays_;
};

/// loss := sum of hidden * weight.
class Sink final : public Block {
 public:
  Sink() : Block("sink", Component::kLlm, Modality::kText) {
    param("weight", {3});
    reads({"hidden"});
    writes({"loss", "correct"});
    never_recompute();
  }
  Flow forward(const Params& params, const Flow& in, const Context&) const override {
    return {{"loss", in["hidden"].mul(params["weight"]).sum()}, {"correct", zeros({}, Dtype::kI64)}};
  }
};

class TwoDevices {
 public:
  explicit TwoDevices(bool strays, bool check_arrivals = true) {
    model_.add<Source>(strays);
    model_.add<Sink>();
    plan_ = make_plan(
        model_,
        {.compute = Dtype::kF32, .recompute = false, .placement = {.num_devices = 2, .device_of_block = {0, 1}}});
    if (!check_arrivals) plan_.steps[1].arrivals.clear();  // as if the plan did not know of the border
    store_ = std::make_unique<ParamStore>(plan_, 0, Devices::virtual_ones(2));
    store_->fill([](const ParamSource&, int64_t, const Tensor& out) { out.fill_(2.0); });
    executor_ = std::make_unique<Executor>(model_, plan_, *store_, comm_);
  }

  double train() {
    const Modalities rows = Modality::kText;
    const auto out = executor_->train({{"input_ids", from_values(std::vector<int64_t>{1, 2, 3}, {1, 3})}},
                                      {.training = true}, rows, rows);
    return out.loss.item<double>();
  }

  std::vector<Crossing> crossings;
  void watch() {
    executor_->watch({.crossed = [this](const Crossing& crossing) { crossings.push_back(crossing); }});
  }

 private:
  Model model_;
  Plan plan_;
  Communicator comm_{World{}, make_solo_backend("cpu")};
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Executor> executor_;
};

std::string error_of(TwoDevices& job) {
  try {
    job.train();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Border, TellsWhatCrossesBothWays) {
  TwoDevices job(false);
  job.watch();
  EXPECT_EQ(job.train(), 24.0);
  ASSERT_EQ(job.crossings.size(), 3);
  EXPECT_EQ(job.crossings[0].slot, "input_ids");
  EXPECT_EQ(job.crossings[0].from, "cpu");
  EXPECT_EQ(job.crossings[1].slot, "hidden");
  EXPECT_EQ(job.crossings[1].block, "sink");
  EXPECT_EQ(job.crossings[1].from, "virtual:0");
  EXPECT_EQ(job.crossings[1].to, "virtual:1");
  EXPECT_EQ(job.crossings[1].bytes, 12);
  EXPECT_TRUE(job.crossings[2].gradient);
  EXPECT_EQ(job.crossings[2].to, "virtual:0");
}

TEST(Border, NamesABlockThatMakesATensorElsewhere) {
  TwoDevices job(/*strays=*/true);
  const std::string text = error_of(job);
  for (const char* part : {"block source", "output \"hidden\" (f32[1, 3])", "stands on cpu", "expected virtual:0",
                           "made by source itself"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Border, NamesAnInputThatThePlanDoesNotLetArrive) {
  TwoDevices job(false, /*check_arrivals=*/false);
  const std::string text = error_of(job);
  for (const char* part :
       {"block sink", "input \"hidden\"", "stands on virtual:0", "expected virtual:1", "made by source on virtual:0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lockstep
