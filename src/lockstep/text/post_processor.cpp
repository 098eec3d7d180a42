#include "lockstep/text/post_processor.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"

namespace lockstep {
namespace {

/// Around a text; real frames have four. A small file can name a long list of ids many times.
constexpr size_t kMostTokens = 4096;

std::vector<int32_t> special_ids(const Json& config, const std::string& name, const std::string& where) {
  const auto specials = config.find("special_tokens");
  if (specials == config.end() || !specials->contains(name)) {
    throw checkpoint_error(fmt::format("{}: special_tokens has no \"{}\", which the template uses", where, name));
  }
  std::vector<int32_t> ids;
  for (const Json& id : list_key(specials->at(name), "ids", where + ": special_tokens"))
    ids.push_back(id_of(id, where + ": special_tokens"));
  return ids;
}

// ["<s>", 0], the form of BertProcessing's sep and cls.
int32_t pair_id(const Json& config, const std::string& key, const std::string& where) {
  const Json& pair = list_key(config, key, where);
  if (pair.size() != 2) {
    throw checkpoint_error(
        fmt::format("{}: \"{}\": expected [token, id], found {}", where, key, cut_text(pair.dump())));
  }
  return id_of(pair[1], where + ": " + key);
}

void require_short(size_t tokens, const std::string& where) {
  if (tokens <= kMostTokens) return;
  throw checkpoint_error(
      fmt::format("{}: expected at most {} special tokens around a text, found more", where, kMostTokens));
}

}  // namespace

PostProcessor::PostProcessor(const Json& config, const std::string& where) { read(config, where); }

void PostProcessor::read(const Json& config, const std::string& where) {
  if (config.is_null()) return;
  require_short(frame_.before.size() + frame_.after.size(), where);
  const std::string type = text_key(config, "type", where);
  if (type == "Sequence") {
    for (const Json& part : list_key(config, "processors", where)) read(part, where);
  } else if (type == "TemplateProcessing") {
    read_template(config, where);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    frame_.before.insert(frame_.before.begin(), pair_id(config, "cls", where));
    frame_.after.push_back(pair_id(config, "sep", where));
  } else if (type != "ByteLevel") {  // ByteLevel only moves offsets
    throw unsupported(where, type, "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence");
  }
}

void PostProcessor::read_template(const Json& config, const std::string& where) {
  std::vector<int32_t> before;
  int sequences = 0;
  for (const Json& piece : list_key(config, "single", where)) {
    if (piece.is_object() && piece.contains("Sequence")) {
      ++sequences;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken")) {
      throw checkpoint_error(
          fmt::format("{}: single: expected Sequence or SpecialToken, found {}", where, cut_text(piece.dump())));
    }
    const auto ids = special_ids(config, text_key(piece.at("SpecialToken"), "id", where + ": single"), where);
    auto& side = sequences == 0 ? before : frame_.after;
    side.insert(side.end(), ids.begin(), ids.end());
    require_short(before.size() + frame_.after.size(), where);
  }
  if (sequences != 1) {
    throw checkpoint_error(
        fmt::format("{}: single: expected the text (Sequence) once, found it {} times", where, sequences));
  }
  frame_.before.insert(frame_.before.begin(), before.begin(), before.end());
}

int32_t PostProcessor::max_id() const {
  int32_t most = -1;
  for (const auto* side : {&frame_.before, &frame_.after}) {
    for (const int32_t id : *side) most = std::max(most, id);
  }
  return most;
}

}  // namespace lockstep
