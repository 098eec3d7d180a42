#include "lockstep/text/tokenizer_folder.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace lockstep {

const std::string* TokenizerFolder::replaced(const std::string& name) const {
  const auto at = std::ranges::find(instead_, name, &NamedTexts::value_type::first);
  return at == instead_.end() ? nullptr : &at->second;
}

bool TokenizerFolder::has(const std::string& name) const {
  return replaced(name) != nullptr || std::filesystem::exists(path(name));
}

std::string TokenizerFolder::text(const std::string& name) const {
  const std::string* const own = replaced(name);
  return own != nullptr ? *own : read_text(path(name));
}

Json TokenizerFolder::json(const std::string& name) const {
  const std::string* const own = replaced(name);
  return own != nullptr ? parse_json(*own, path(name).string()) : read_json(path(name));
}

}  // namespace lockstep
