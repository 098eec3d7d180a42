// The target that LOCKSTEP_FUZZ_TARGET names, for libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "targets.h"

namespace {

const lockstep::fuzz::Target& chosen() {
  static const lockstep::fuzz::Target target = [] {
    const char* const wanted = std::getenv("LOCKSTEP_FUZZ_TARGET");
    for (const auto& targets : {lockstep::fuzz::reading_targets(), lockstep::fuzz::command_targets()}) {
      for (const auto& one : targets) {
        if (wanted != nullptr && one.name == wanted) return one;
      }
    }
    std::fprintf(stderr, "LOCKSTEP_FUZZ_TARGET: expected a target of tests/fuzz/{reading,command}_targets.cpp\n");
    std::exit(2);
  }();
  return target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::fuzz::run_one(chosen(), {reinterpret_cast<const char*>(data), size});
  return 0;
}
