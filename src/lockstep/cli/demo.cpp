#include "lockstep/cli/demo.h"

#include "lockstep/base/error.h"

namespace lockstep {

const char* const demo_summary = "draw shapes, train a small vision-language model on them, measure it, ask it";

int run_demo(const std::vector<std::string>&, const Env&) { throw usage_error("soon"); }

}  // namespace lockstep
