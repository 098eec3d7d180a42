#include "lockstep/text/pre_tokenizer.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"
#include "lockstep/text/normalizer.h"
#include "lockstep/text/split_behavior.h"
#include "lockstep/text/utf8.h"
#include "lockstep/text/white_space.h"

namespace lockstep {
namespace {

constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSupported =
    "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, Sequence";

enum class Scheme { kAlways, kFirst, kNever };

// One match a character.
std::vector<ByteRange> characters(std::string_view text, bool (*wanted)(char32_t)) {
  std::vector<ByteRange> out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (wanted(step.code_point)) out.push_back({i, i + step.size});
    i += step.size;
  }
  return out;
}

std::vector<ByteRange> occurrences(std::string_view text, std::string_view literal) {
  std::vector<ByteRange> out;
  for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, at + literal.size())) {
    out.push_back({at, at + literal.size()});
  }
  return out;
}

}  // namespace

struct PreTokenizer::Step {
  std::string prefix;  // put before each piece, by `scheme`
  Scheme scheme = Scheme::kNever;
  std::string space;           // Metaspace: what replaces " "
  std::optional<Regex> regex;  // at most one of these three finds the matches
  std::string literal;
  bool (*character)(char32_t) = nullptr;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;

  bool splits() const { return regex || !literal.empty() || character != nullptr; }
  std::vector<ByteRange> matches(std::string_view text) const {
    if (regex) return regex->find_all(text);
    return character != nullptr ? characters(text, character) : occurrences(text, literal);
  }
  std::string_view prepare(const Piece& piece, Pieces& pieces) const;
};

// Replaces spaces and puts the prefix.
std::string_view PreTokenizer::Step::prepare(const Piece& piece, Pieces& pieces) const {
  std::string_view text = piece.text;
  if (!space.empty() && text.find(' ') != std::string_view::npos) text = pieces.keep(replace_all(text, " ", space));
  const bool wanted = scheme == Scheme::kAlways || (scheme == Scheme::kFirst && piece.at_start);
  const bool continuing = pieces.continues && piece.at_start;
  if (wanted && !continuing && !text.starts_with(prefix)) text = pieces.keep(prefix + std::string(text));
  return text;
}

void PreTokenizer::apply(Pieces& pieces) const {
  size_t given = 0;
  for (const Piece& piece : pieces.list) given += piece.text.size();
  for (const auto& step : steps_) {
    std::vector<Piece> out;
    size_t made = 0;
    for (const Piece& piece : pieces.list) {
      const std::string_view text = step->prepare(piece, pieces);
      refuse_growth(made += text.size(), given);
      if (!step->splits()) {
        out.push_back({text, piece.at_start});
        continue;
      }
      for (const ByteRange& part : split_ranges(text.size(), step->matches(text), step->behavior, step->invert)) {
        out.push_back({text.substr(part.begin, part.end - part.begin), piece.at_start && part.begin == 0});
      }
    }
    pieces.list = std::move(out);
  }
}

namespace {

using Step = PreTokenizer::Step;

Step read_metaspace(const Json& config, const std::string& where) {
  Step step;
  step.space = step.prefix = short_literal(text_key(config, "replacement", where), "replacement", where);
  const std::string scheme = config.contains("prepend_scheme") ? text_key(config, "prepend_scheme", where)
                             : flag_key(config, "add_prefix_space", true, where) ? "always"
                                                                                 : "never";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    throw unsupported(where + ": prepend_scheme", scheme, "always, first, never");
  }
  step.scheme = scheme == "always" ? Scheme::kAlways : scheme == "first" ? Scheme::kFirst : Scheme::kNever;
  if (flag_key(config, "split", true, where)) {
    step.literal = step.space;
    step.behavior = SplitBehavior::kMergedWithNext;
  }
  return step;
}

Step read_split(const Json& config, const std::string& where) {
  Step step;
  const Pattern pattern = pattern_key(config, where);
  if (pattern.is_regex) {
    step.regex.emplace(pattern.text, where);
  } else {
    step.literal = pattern.text;
  }
  step.behavior = split_behavior(text_key(config, "behavior", where), where);
  step.invert = flag_key(config, "invert", false, where);
  return step;
}

Step read_byte_level(const Json& config, const std::string& where) {
  Step step;
  if (flag_key(config, "add_prefix_space", true, where)) {
    step.prefix = " ";
    step.scheme = Scheme::kAlways;
  }
  if (flag_key(config, "use_regex", true, where)) step.regex.emplace(kGpt2Pattern, where);
  return step;
}

Step read_simple(const Json& config, const std::string& type, const std::string& where) {
  Step step;
  if (type == "Digits") {
    step.character = is_number;
    step.behavior =
        flag_key(config, "individual_digits", false, where) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Punctuation") {
    step.character = is_punctuation;
    if (config.contains("behavior")) step.behavior = split_behavior(text_key(config, "behavior", where), where);
  } else if (type == "WhitespaceSplit") {
    step.character = is_white_space;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Whitespace") {
    step.regex.emplace("\\w+|[^\\w\\s]+", where);
    step.behavior = SplitBehavior::kRemoved;
    step.invert = true;
  } else {
    throw unsupported(where, type, kSupported);
  }
  return step;
}

}  // namespace

void PreTokenizer::read(const Json& config, const std::string& where) {
  if (config.is_null()) return;
  refuse_more_steps(steps_.size(), where);
  const std::string type = text_key(config, "type", where);
  if (type == "Sequence") {
    for (const Json& part : list_key(config, "pretokenizers", where)) read(part, where);
    return;
  }
  if (byte_level_) {
    throw checkpoint_error(fmt::format("{}: \"{}\" behind \"ByteLevel\" is not supported", where, type),
                           "ByteLevel must be the last pre-tokenizer");
  }
  byte_level_ = type == "ByteLevel";
  steps_.push_back(std::make_unique<Step>(byte_level_           ? read_byte_level(config, where)
                                          : type == "Split"     ? read_split(config, where)
                                          : type == "Metaspace" ? read_metaspace(config, where)
                                                                : read_simple(config, type, where)));
}

PreTokenizer::PreTokenizer(const Json& config, const std::string& where) { read(config, where); }
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

}  // namespace lockstep
