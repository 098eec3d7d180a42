#include "lockstep/watch/plan_page.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/memory_account.h"

namespace lockstep {
namespace {

TEST(PlanPage, ShowsBarsAndTheText) {
  MemoryAccount account;
  account.devices.push_back({.name = "cuda:0",
                             .capacity = 2000,
                             .alive_by_use = {},
                             .phases = {{"forward", 1000, {{"parameters", 600}, {"activations", 400}}, "lm_head"}}});
  account.batch = "1 micro-batch";
  const std::string page = plan_page("plan of <model>", as_json(account), "layers.0-3 & more");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_NE(page.find("<h1>plan of &lt;model&gt;</h1>"), std::string::npos);
  EXPECT_NE(page.find("title=\"activations 400 B\""), std::string::npos) << page.substr(page.find("<main>"));
  EXPECT_NE(page.find("<pre>layers.0-3 &amp; more</pre>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
