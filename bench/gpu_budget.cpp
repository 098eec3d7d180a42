// Prints what a step queues on a GPU (exec/step_work.h) as a line of JSON: of each kernel by name calls, bytes and operations.
//
//   gpu_budget CONFIG_DIR TOKENS LAYERS WORLD WORK      WORK: forward | train | train_again (blocks run again)
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/exec/step_work.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/typical_row.h"

using namespace lockstep;

namespace {

int64_t number(std::string_view text) {
  int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc() || value <= 0) {
    std::cerr << "gpu_budget: " << text << ": expected a number above 0\n";
    std::exit(2);
  }
  return value;
}

Model model_of(const std::string& folder, int64_t layers) {
  Json json = read_json(std::filesystem::path(folder) / "config.json");
  json["num_hidden_layers"] = layers;
  const HfConfig config(json, folder);
  return family_of(config).build(config);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string work = argc == 6 ? argv[5] : "";
  if (work != "forward" && work != "train" && work != "train_again") {
    std::cerr << "gpu_budget CONFIG_DIR TOKENS LAYERS WORLD forward|train|train_again\n";
    return 2;
  }
  const Model model = model_of(argv[1], number(argv[3]));
  const Plan plan = make_plan(model, {.world = static_cast<int>(number(argv[4])),
                                      .zero = {3},
                                      .compute = Dtype::kBF16,
                                      .training = work != "forward",
                                      .recompute = work == "train_again"});
  Json out = Json::object();
  for (const auto& [name, kernel] : work_of_step(model, plan, {{typical_text_row(number(argv[2]))}})) {
    out[name] = {{"calls", kernel.calls}, {"bytes", kernel.bytes}, {"flops", kernel.flops}};
  }
  std::cout << out.dump() << "\n";
  return 0;
}
