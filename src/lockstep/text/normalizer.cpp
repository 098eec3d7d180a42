#include "lockstep/text/normalizer.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utf8proc.h>

#include "lockstep/base/error.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"
#include "lockstep/text/regex.h"
#include "lockstep/text/utf8.h"
#include "lockstep/text/white_space.h"

namespace lockstep {

struct Normalizer::Step {
  enum class Kind { kUnicode, kPrepend, kReplace, kStrip };
  Kind kind = Kind::kUnicode;
  utf8proc_option_t form{};        // kUnicode
  bool composes = false;           // kUnicode: NFC
  std::string literal, content;    // kPrepend: content; kReplace: both
  std::optional<Regex> regex;      // kReplace, instead of literal
  bool left = true, right = true;  // kStrip

  std::string apply(std::string text) const;
};

namespace {

using Step = Normalizer::Step;

// Most text is normal already. These ranges hold no character that composes, decomposes or reorders under NFC.
bool is_plainly_nfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xCC) {  // below U+0300
      i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
      continue;
    }
    const Utf8Step step = utf8_step(text, i);
    const bool cjk = step.code_point >= 0x4E00 && step.code_point <= 0x9FFF;
    const bool punctuation = (step.code_point >= 0x2010 && step.code_point <= 0x2027) ||
                             (step.code_point >= 0xFF01 && step.code_point <= 0xFF60);
    if (!cjk && !punctuation) return false;
    i += step.size;
  }
  return true;
}

std::string unicode_normalize(const std::string& text, const Step& step) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, step.form);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) throw data_error(fmt::format("Unicode normalisation failed: {}", utf8proc_errmsg(size)));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

std::string replace_matches(std::string_view text, const Regex& regex, std::string_view content) {
  std::string out;
  size_t done = 0;
  for (const ByteRange& match : regex.find_all(text)) {
    refuse_growth(out.size(), text.size());
    out.append(text.substr(done, match.begin - done)).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

std::unique_ptr<Step> unicode_step(bool composes, bool compatible) {
  auto step = std::make_unique<Step>();
  step->composes = composes && !compatible;
  const int form =
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  step->form = static_cast<utf8proc_option_t>(form);
  return step;
}

void read_steps(const Json& config, const std::string& where, std::vector<std::unique_ptr<Step>>& steps) {
  if (config.is_null()) return;
  refuse_more_steps(steps.size(), where);
  const std::string type = text_key(config, "type", where);
  if (type == "Sequence") {
    for (const Json& part : list_key(config, "normalizers", where)) read_steps(part, where, steps);
    return;
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.push_back(unicode_step(type.back() == 'C', type.size() == 4));
    return;
  }
  auto step = std::make_unique<Step>();
  if (type == "Prepend") {
    step->kind = Step::Kind::kPrepend;
    step->content = short_literal(text_key(config, "prepend", where), "prepend", where);
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
    step->left = flag_key(config, "strip_left", true, where);
    step->right = flag_key(config, "strip_right", true, where);
  } else {
    throw unsupported(where, type, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Sequence");
  }
  steps.push_back(std::move(step));
}

}  // namespace

std::string Normalizer::Step::apply(std::string text) const {
  switch (kind) {
    case Kind::kUnicode:
      return composes && is_plainly_nfc(text) ? std::move(text) : unicode_normalize(text, *this);
    case Kind::kPrepend:
      return text.empty() ? std::move(text) : content + text;
    case Kind::kReplace:
      return regex ? replace_matches(text, *regex, content) : replace_all(text, literal, content);
    case Kind::kStrip: {
      std::string_view view = text;
      if (left) view.remove_prefix(white_space_at_start(view));
      if (right) view.remove_suffix(white_space_at_end(view));
      return std::string(view);
    }
  }
  return text;
}

Normalizer::Normalizer(const Json& config, const std::string& where) { read_steps(config, where, steps_); }
Normalizer::~Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;

std::string Normalizer::apply(std::string text, bool prepends) const {
  const size_t given = text.size();
  for (const auto& step : steps_) {
    if (step->kind != Step::Kind::kPrepend || prepends) text = step->apply(std::move(text));
    refuse_growth(text.size(), given);
  }
  return text;
}

std::string replace_all(std::string_view text, std::string_view literal, std::string_view replacement) {
  if (literal.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, done)) {
    refuse_growth(out.size(), text.size());
    out.append(text.substr(done, at - done)).append(replacement);
    done = at + literal.size();
  }
  return out.append(text.substr(done));
}

}  // namespace lockstep
