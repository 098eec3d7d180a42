#include "lockstep/zoo/registry.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/zoo/families.h"

namespace lockstep {
namespace {

std::string listed() {
  std::string names;
  for (const auto& family : families()) names += (names.empty() ? "" : ", ") + family.name;
  return names;
}

const Family* find_by(const std::string& word) {
  for (const auto& family : families()) {
    if (family.name == word || std::ranges::find(family.architectures, word) != family.architectures.end()) {
      return &family;
    }
  }
  return nullptr;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table{qwen2_family(), llama_family(), llava_family(), qwen2_5_vl_family(),
                                         internvl_family()};
  return table;
}

const Family& family_of(const HfConfig& config) {
  auto words = config.texts("architectures");
  words.push_back(config.text("model_type", ""));
  std::string found;
  for (const auto& word : words) {
    if (const Family* family = find_by(word)) return *family;
    if (!word.empty()) found += (found.empty() ? "" : ", ") + word;
  }
  throw checkpoint_error(
      fmt::format("{}: expected architectures or model_type of a family that Lockstep knows ({}), found {}",
                  config.where(), listed(), found.empty() ? "neither key" : found),
      "a checkpoint of another family needs its own file in zoo/ (docs/add_a_model.md)");
}

const Family& family_named(const std::string& name) {
  if (const Family* family = find_by(name)) return *family;
  std::vector<std::string> names;
  for (const auto& family : families()) names.push_back(family.name);
  const std::string nearest = nearest_name(name, names);
  throw usage_error(fmt::format("family \"{}\": expected one of {}", name, listed()),
                    nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
}

}  // namespace lockstep
