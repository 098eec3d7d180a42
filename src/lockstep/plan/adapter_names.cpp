#include "lockstep/plan/adapter_names.h"

#include <string_view>

namespace lockstep {

std::string text_name(const std::string& key) {
  size_t at = 0;
  while (!key.substr(at).starts_with("model.") && !key.substr(at).starts_with("lm_head")) {
    at = key.find('.', at);
    if (at == std::string::npos) return key;
    ++at;
  }
  return key.substr(at);
}

Dialect without_head(Dialect dialect) {
  constexpr std::string_view kModel = "model.";  // what the class with a head holds the other as
  dialect.name += ", without its head";
  for (auto& rule : dialect.rules) {
    if (rule.other.starts_with(kModel)) rule.other.erase(0, kModel.size());
  }
  return dialect;
}

}  // namespace lockstep
