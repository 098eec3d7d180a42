// transformers' names of optimizers.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

TEST(OptimizerNames, OfOneAdamWAreTakenAndOthersRefused) {
  const auto told = [](const std::string& name) {
    try {
      const auto has = [](const std::string& flag) { return flag != "optim"; };
      return join(translate("sft", {"--model", "m", "--optim", name}, has).notices(), "\n");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
  };
  for (const char* name : {"adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused"}) {
    EXPECT_NE(told(name).find("it is what is done"), std::string::npos) << told(name);
  }
  EXPECT_NE(told("paged_adamw_32bit").find("--offload optimizer keeps them in host memory"), std::string::npos);
  EXPECT_NE(told("adafactor").find("--optim adafactor: AdamW is the one optimizer"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
