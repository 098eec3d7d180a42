#include "lockstep/text/decoder.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/text/byte_level.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"
#include "lockstep/text/normalizer.h"
#include "lockstep/text/regex.h"
#include "lockstep/text/utf8.h"

namespace lockstep {

struct Decoder::Step {
  enum class Kind { kByteLevel, kByteFallback, kFuse, kMetaspace, kReplace, kStrip };
  Kind kind = Kind::kFuse;
  bool fused = false;            // the tokens are one text already
  std::string literal, content;  // kReplace; kMetaspace and kStrip: content is the character
  std::optional<Regex> regex;    // kReplace, instead of literal
  int64_t start = 0, stop = 0;   // kStrip: how many characters at most
  bool drops_first = false;      // kMetaspace

  std::vector<std::string> apply(std::vector<std::string> tokens, bool at_start) const;
  std::string replace(const std::string& token) const;
  std::string strip(std::string_view token, bool at_start) const;
};

namespace {

using Step = Decoder::Step;
using Tokens = std::vector<std::string>;

// A token outside the byte-level alphabet (an added one) stands for its own bytes.
std::string join_bytes(const Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const auto decoded = alphabet_to_bytes(token);
    bytes += decoded ? *decoded : token;
  }
  return bytes;
}

std::string join(const Tokens& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

// "<0x0A>" is a byte. A sign is taken as part of the number, as Hugging Face does.
std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  std::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return static_cast<char>(value);
}

// A run of byte tokens is one text if its bytes are valid, else one U+FFFD a byte.
Tokens apply_byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (is_valid_utf8(run)) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_token(token)) {
      run.push_back(*byte);
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

}  // namespace

std::string Decoder::Step::replace(const std::string& token) const {
  if (!regex) return replace_all(token, literal, content);
  std::string out;
  size_t done = 0;
  for (const ByteRange& match : regex->find_all(token)) {
    refuse_growth(out.size(), token.size());
    out.append(token, done, match.begin - done).append(content);
    done = match.end;
  }
  return out.append(token, done);
}

std::string Decoder::Step::strip(std::string_view token, bool at_start) const {
  if (content.empty()) return std::string(token);
  if (at_start || !fused) {
    for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.remove_prefix(content.size());
  }
  for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.remove_suffix(content.size());
  return std::string(token);
}

std::vector<std::string> Decoder::Step::apply(std::vector<std::string> tokens, bool at_start) const {
  switch (kind) {
    case Kind::kByteLevel:
      return {repair_utf8(join_bytes(tokens))};
    case Kind::kByteFallback:
      return apply_byte_fallback(tokens);
    case Kind::kFuse:
      return {join(tokens)};
    case Kind::kMetaspace:
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = replace_all(tokens[i], content, i == 0 && at_start && drops_first ? "" : " ");
      }
      return tokens;
    case Kind::kReplace:
      for (std::string& token : tokens) token = replace(token);
      return tokens;
    case Kind::kStrip:
      for (std::string& token : tokens) token = strip(token, at_start);
      return tokens;
  }
  return tokens;
}

void Decoder::read(const Json& config, const std::string& where) {
  if (config.is_null()) return;
  refuse_more_steps(steps_.size(), where);
  const std::string type = text_key(config, "type", where);
  if (type == "Sequence") {
    for (const Json& part : list_key(config, "decoders", where)) read(part, where);
    return;
  }
  auto step = std::make_unique<Step>();
  step->fused = std::any_of(steps_.begin(), steps_.end(), [](const auto& earlier) {
    return earlier->kind == Step::Kind::kFuse || earlier->kind == Step::Kind::kByteLevel;
  });
  if (type == "ByteLevel") {
    step->kind = Step::Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step->kind = Step::Kind::kByteFallback;
  } else if (type == "Metaspace") {
    step->kind = Step::Kind::kMetaspace;
    step->content = short_literal(text_key(config, "replacement", where), "replacement", where);
    step->drops_first = config.contains("prepend_scheme") ? text_key(config, "prepend_scheme", where) != "never"
                                                          : flag_key(config, "add_prefix_space", true, where);
  } else if (type == "Replace") {
    step->kind = Step::Kind::kReplace;
    step->content = short_literal(text_key(config, "content", where), "content", where);
    const Pattern pattern = pattern_key(config, where);
    if (pattern.is_regex) {
      step->regex.emplace(pattern.text, where);
    } else {
      step->literal = pattern.text;
    }
  } else if (type == "Strip") {
    step->kind = Step::Kind::kStrip;
    step->content = short_literal(text_key(config, "content", where), "content", where);
    step->start = number_key(config, "start", where);
    step->stop = number_key(config, "stop", where);
  } else if (type != "Fuse") {
    throw unsupported(where, type, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence");
  }
  steps_.push_back(std::move(step));
}

Decoder::Decoder(const Json& config, const std::string& where) { read(config, where); }
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

std::string Decoder::decode(std::vector<std::string> tokens, bool at_start) const {
  if (steps_.empty()) {
    std::string out;
    for (size_t i = 0; i < tokens.size(); ++i) out += (i > 0 || !at_start ? " " : "") + tokens[i];
    return out;
  }
  const auto bytes = [&] {
    size_t sum = 0;
    for (const std::string& token : tokens) sum += token.size();
    return sum;
  };
  const size_t given = bytes();
  RegexBudget budget(given);
  for (const auto& step : steps_) {
    tokens = step->apply(std::move(tokens), at_start);
    refuse_growth(bytes(), given);
  }
  return join(tokens);
}

bool Decoder::is_local() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) {
    return !step->fused || step->kind == Step::Kind::kFuse || (step->kind == Step::Kind::kStrip && step->stop == 0);
  });
}

bool Decoder::has_byte_fallback() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->kind == Step::Kind::kByteFallback; });
}

CertainText Decoder::decode_certain(std::vector<std::string> tokens, bool at_start) const {
  if (!is_local()) return {.complete = tokens.empty()};
  const size_t num_tokens = tokens.size();
  if (has_byte_fallback()) {
    while (!tokens.empty() && byte_token(tokens.back())) tokens.pop_back();
  }
  CertainText out{.complete = tokens.size() == num_tokens};
  if (!steps_.empty() && steps_[0]->kind == Step::Kind::kByteLevel) {
    std::string bytes = join_bytes(tokens);
    const size_t unfinished = utf8_unfinished(bytes);
    out.complete = out.complete && unfinished == 0;
    bytes.resize(bytes.size() - unfinished);
    tokens = {bytes_to_alphabet(bytes)};
  }
  out.text = decode(std::move(tokens), at_start);
  return out;
}

}  // namespace lockstep
