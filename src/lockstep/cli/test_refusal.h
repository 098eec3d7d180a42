// Tests only: what a person is told who asks for what cannot be.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {

/// The text of the usage error that `work` throws; "none" when it throws none.
inline std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "none";
}

}  // namespace lockstep
