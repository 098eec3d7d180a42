// Reading the parts of a tokenizer.json with errors that name file, part and key.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// A `pattern`: {"String": …} or {"Regex": …}.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

std::string text_key(const Json& object, const std::string& key, const std::string& where);
bool flag_key(const Json& object, const std::string& key, bool fallback, const std::string& where);
/// The id of a token. Throws UserError(kCheckpoint) naming `where` for anything else.
int32_t id_of(const Json& value, const std::string& where);
int64_t number_key(const Json& object, const std::string& key, const std::string& where);
const Json& list_key(const Json& object, const std::string& key, const std::string& where);
Pattern pattern_key(const Json& object, const std::string& where);

/// "tokenizer.json: normalizer: type "Nmt" is not supported; hint: supported: NFC, …"
UserError unsupported(const std::string& where, std::string_view type, std::string_view supported);

}  // namespace lockstep
