#include "lockstep/zoo/speakers.h"

#include <limits>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/torch_file.h"
#include "lockstep/model/torch_tensor.h"

namespace lockstep {
namespace {

constexpr const char* kHint = "take the spk_dict.pt that the model was published with";

/// The value of `key`, nullptr where the dict has none.
const Pickle::Node* find(const Pickle& pickle, const Pickle::Node& dict, std::string_view key) {
  for (size_t i = 0; i + 1 < dict.parts.size(); i += 2) {
    const Pickle::Node& name = pickle[dict.parts[i]];
    if (name.kind == Pickle::Kind::kText && name.text == key) return &pickle[dict.parts[i + 1]];
  }
  return nullptr;
}

}  // namespace

std::map<std::string, int32_t> read_speakers(const std::filesystem::path& file) {
  const std::string where = file.string();
  if (!std::filesystem::exists(file)) {
    throw checkpoint_error(where + ": expected the speakers of a model that talks, found no such file", kHint);
  }
  const MappedFile mapped(file);
  const Pickle pickle = read_torch_pickle(mapped.bytes(), where);
  const auto& parts = pickle.root().parts;
  if (!is_dict(pickle, pickle.root()) || parts.empty()) {
    throw checkpoint_error(
        fmt::format("{}: expected a dict of speakers, found {}", where, pickle.describe(pickle.root())), kHint);
  }
  std::map<std::string, int32_t> speakers;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    const Pickle::Node &name = pickle[parts[i]], &values = pickle[parts[i + 1]];
    if (name.kind != Pickle::Kind::kText) {
      throw checkpoint_error(fmt::format("{}: expected names of speakers, found {}", where, pickle.describe(name)),
                             kHint);
    }
    const std::string who = plain_text(name.text, 64);
    const Pickle::Node* token = is_dict(pickle, values) ? find(pickle, values, "bos_token") : nullptr;
    const bool fits = token != nullptr && token->kind == Pickle::Kind::kInt && token->number >= 0 &&
                      token->number <= std::numeric_limits<int32_t>::max();
    if (!fits) {
      throw checkpoint_error(
          fmt::format("{}: speaker {}: expected a dict with a token of text as \"bos_token\", found {}", where, who,
                      token != nullptr ? pickle.describe(*token) : "none"),
          kHint);
    }
    speakers[who] = static_cast<int32_t>(token->number);
  }
  return speakers;
}

}  // namespace lockstep
