#include "lockstep/dialect/translate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/flag_table.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

constexpr const char* kTrainedSo = "it was trained so (args.json; --load_args false leaves it out)";

std::string inverted(const std::string& truth) { return truth == "true" ? "false" : "true"; }

/// Numbers in other spellings are one value.
bool is_harmless(const FlagRow& row, const std::string& value) {
  return std::ranges::any_of(row.harmless, [&](const std::string& one) {
    if (one == lowered(value)) return true;
    if (row.kind == FlagKind::kTruth) return (is_true(one) && is_true(value)) || (is_false(one) && is_false(value));
    try {
      return std::stod(one) == std::stod(value);
    } catch (const std::exception&) {
      return false;
    }
  });
}

/// "--no_x" of a truth value x, as the HF parser has it.
std::optional<GivenFlag> without_no(const GivenFlag& flag, Stack stack, const std::string& verb) {
  if (!flag.name.starts_with("no_") || !flag.values.empty()) return std::nullopt;
  const std::string name = flag.name.substr(3);
  const FlagRow* row = FlagTable::own().find(stack, verb, name);
  if (row == nullptr || row->kind != FlagKind::kTruth) return std::nullopt;
  return GivenFlag{.name = name, .spelled = flag.spelled, .values = {"false"}};
}

}  // namespace

std::string Understood::text() const {
  if (given.empty()) return fmt::format("{}: {}", meaning, why);
  if (meaning.empty()) return fmt::format("{} makes no difference: {}", given, why);
  return why.empty() ? fmt::format("{} is {}", given, meaning) : fmt::format("{} is {}: {}", given, meaning, why);
}

std::vector<std::string> Translation::notices() const {
  std::vector<std::string> out;
  std::vector<Understood> defaults;  // by why
  for (const auto& one : understood) {
    if (!one.given.empty()) {
      out.push_back(one.text());
    } else if (const auto at = std::ranges::find(defaults, one.why, &Understood::why); at != defaults.end()) {
      at->meaning += " " + one.meaning;
    } else {
      defaults.push_back(one);
    }
  }
  for (const auto& one : defaults) out.push_back(one.text());
  return out;
}

Translator::Translator(std::string verb, std::vector<GivenFlag> flags, std::function<bool(const std::string&)> has)
    : verb_(std::move(verb)), flags_(std::move(flags)), has_(std::move(has)), stack_(recognise_stack(flags_)) {}

const GivenFlag* Translator::given(const std::string& name) const {
  const auto at = std::ranges::find(flags_, name, &GivenFlag::name);
  return at == flags_.end() ? nullptr : &*at;
}

bool Translator::given_truth(const std::string& name, bool otherwise) const {
  const GivenFlag* flag = given(name);
  if (flag == nullptr) return otherwise;
  const auto values = read_flag_values(FlagKind::kTruth, *flag);
  return values ? values->front() == "true" : otherwise;
}

void Translator::mean(const std::string& own, Values values, const std::string& why) {
  if (!has_(own)) {
    if (trains()) refuse("is not built yet");
    return note(fmt::format("--{} has no use in `lockstep {}`", own, verb_));
  }
  const auto [at, is_new] = meanings_.emplace(own, Meaning{values, flag_->text()});
  if (!is_new && at->second.values != values) {
    throw usage_error(fmt::format("{} and {} contradict each other: {} or {}?", at->second.given, flag_->text(),
                                  shown_flag(own, at->second.values), shown_flag(own, values)),
                      "leave one of them out");
  }
  if (is_new) order_.push_back(own);
  if (own != flag_->name) out_.renamed.emplace("--" + own, flag_->spelled);
  if (own != flag_->name || !why.empty()) out_.understood.push_back({flag_->text(), shown_flag(own, values), why});
}

void Translator::mean_variable(const std::string& name, const std::string& value) {
  if (!has_("media_variable")) return note(fmt::format("{} has no use in `lockstep {}`", name, verb_));
  variables_.push_back(name + "=" + value);
  out_.understood.push_back({flag_->text(), fmt::format("{}={}", name, value), "as in the environment"});
}

void Translator::note(const std::string& why) { out_.understood.push_back({flag_->text(), "", why}); }

void Translator::refuse(const std::string& why, const std::string& instead) const {
  throw usage_error(fmt::format("{}: {}", cut_text(flag_->text()), why), instead);
}

bool Translator::all_harmless(const FlagRow& row) const {
  return std::ranges::all_of(values_, [&](const auto& one) { return is_harmless(row, one); });
}

void Translator::take_row(const FlagRow& row) {
  using enum FlagEffect;
  switch (row.effect) {
    case kOwn:
      if (!has_(flag_->name) && !row.harmless.empty() && all_harmless(row)) return note("it is what is done");
      return mean(flag_->name, values_);
    case kAs:
      return mean(has_(row.target) || !has_(flag_->name) ? row.target : flag_->name, values_);
    case kNot:
      return mean(row.target, {inverted(value())});
    case kNone:
      return note(row.why);
    case kOnly:
      if (all_harmless(row)) return note("it is what is done");
      refuse(row.why);
    case kRule:
      break;
  }
  const Rule rule = rule_named(row.target);
  check(rule != nullptr, fmt::format("flag_table.txt: there is no rule \"{}\"", row.target));
  rule(*this);
}

/// Lockstep's own, or nobody's: the verb's parser knows, which is shown a name with a slip as it was written.
void Translator::pass_on(const GivenFlag& flag) {
  passed_.push_back("--" + (has_(flag.name) ? flag.name : flag.spelled.substr(2)));
  passed_.insert(passed_.end(), flag.values.begin(), flag.values.end());
}

/// nullptr: no stack has it, or it is Lockstep's own and another thing elsewhere. One that the stack at hand has not is read as another has it.
const FlagRow* Translator::row_of(const std::string& name) const {
  const FlagTable& table = FlagTable::own();
  if (const FlagRow* row = table.find(stack_, verb_, name)) {
    const bool is_other = row->effect == FlagEffect::kNone || row->effect == FlagEffect::kOnly;
    return is_other && has_(name) ? nullptr : row;
  }
  if (has_(name)) return nullptr;
  const std::vector<Stack> stacks = table.stacks_of(name);
  return stacks.empty() ? nullptr : table.find(stacks[0], verb_, name);
}

void Translator::take(const GivenFlag& flag) {
  flag_ = &flag;
  const FlagRow* row = row_of(flag.name);
  if (row == nullptr) return pass_on(flag);
  const auto values = read_flag_values(row->kind, flag);
  if (!values) return;  // it says that it is not given
  values_ = *values;
  take_row(*row);
}

/// What a checkpoint was trained with counts where it is asked, as ms-swift has it, unless it is said otherwise.
/// Source: ms-swift 4.6, arguments/base_args/base_args.py load_args_from_ckpt.
void Translator::add_saved_args() {
  const bool wanted = given_truth("load_args", given_truth("load_args_from_ckpt_dir", true));
  const bool asks = verb_ == "infer" || verb_ == "eval" || verb_ == "embed";
  if (!asks || stack_ != Stack::kSwift || !wanted) return;
  for (const char* where : {"adapters", "model"}) {
    const auto at = meanings_.find(where);
    if (at == meanings_.end() || at->second.values.empty()) continue;
    const std::filesystem::path file = std::filesystem::path(at->second.values[0]) / "args.json";
    if (std::error_code failure; !std::filesystem::is_regular_file(file, failure)) continue;
    const Json args = read_json(file);
    for (const char* key : {"system", "truncation_strategy", "norm_bbox", "use_chat_template"}) {
      const Json value = args.is_object() ? args.value(key, Json()) : Json();
      const std::string word = value.is_string() ? value.get<std::string>() : value == false ? "false" : "";
      const bool said = meanings_.contains(key) || given(key) != nullptr;
      // Rows to be answered are left out where they are too long, which is what is done anyway; nothing is cut in pieces there.
      if (!has_(key) || said || word.empty() || word == "delete" || word == "split") continue;
      add_saved(key, word);
    }
    add_saved_media(args);
    return;
  }
}

void Translator::add_saved(const std::string& own, const std::string& value) {
  out_.unsaid.insert("--" + own);
  meanings_[own] = {{value}, ""};
  order_.push_back(own);
  out_.understood.push_back({"", shown_flag(own, {value}), kTrainedSo});
}

/// Of a run by LLaMA-Factory's words, in which no variable says how pictures and films are made.
void Translator::add_saved_media(const Json& args) {
  if (!has_("media_default") || !args.is_object() || args.value("media_default", Json()).empty()) return;
  std::string all;
  for (const char* key : {"media_variable", "media_default"}) {  // as they rank
    const Json list = args.value(key, Json());
    for (const Json& one : list.is_array() ? list : Json::array()) {
      if (!one.is_string() || one.get<std::string>().find('=') == std::string::npos) continue;
      media_defaults_.push_back(one.get<std::string>());
      all += (all.empty() ? "" : " ") + media_defaults_.back();
    }
  }
  if (!all.empty()) out_.understood.push_back({"", all, kTrainedSo});
  const Json most = args.value("max_pixels", Json());
  const bool said = meanings_.contains("max_pixels") || given("max_pixels") != nullptr;
  if (has_("max_pixels") && !said && most.is_number_integer()) add_saved("max_pixels", most.dump());
}

Translation Translator::run(const std::vector<std::string>& before) {
  out_.stack = stack_;
  // As argparse has it: what stands last counts.
  std::vector<GivenFlag> last;
  for (auto& flag : flags_) {
    if (auto positive = without_no(flag, stack_, verb_)) flag = std::move(*positive);
    const auto at = std::ranges::find(last, flag.name, &GivenFlag::name);
    if (at == last.end() || row_of(flag.name) == nullptr) {
      last.push_back(flag);
      continue;
    }
    if (at->values != flag.values) {
      out_.understood.push_back({at->text(), "", fmt::format("{} stands after it, and the last counts", flag.text())});
    }
    *at = flag;
  }
  flags_ = std::move(last);
  for (const auto& flag : flags_) take(flag);
  add_saved_args();
  add_defaults();
  out_.words = before;
  for (const auto& own : order_) {
    out_.words.push_back("--" + own);
    const Values& values = meanings_[own].values;
    out_.words.insert(out_.words.end(), values.begin(), values.end());
  }
  out_.words.insert(out_.words.end(), passed_.begin(), passed_.end());
  for (const auto& variable : variables_) out_.words.insert(out_.words.end(), {"--media_variable", variable});
  for (const auto& variable : media_defaults_) out_.words.insert(out_.words.end(), {"--media_default", variable});
  return std::move(out_);
}

Translation translate(const std::string& verb, const std::vector<std::string>& args,
                      const std::function<bool(const std::string&)>& has) {
  GivenWords given = given_words(args);
  return Translator(verb, std::move(given.flags), has).run(given.before);
}

std::string verb_meant(const std::string& verb, const std::vector<std::string>& args) {
  const Translator words(verb, given_words(args).flags, [](const std::string&) { return false; });
  const bool trains = words.stack() != Stack::kLlamaFactory || words.given_truth("do_train", false);
  if (verb != "sft" || trains) return verb;
  return words.given_truth("do_predict", false) || words.given_truth("do_eval", false) ? "eval" : verb;
}

Rule rule_named(const std::string& name) {
  for (const auto* rules : {&model_rules(), &row_rules(), &training_rules(), &run_rules(), &accelerate_rules(),
                            &internvl_rules(), &qwen_rules()}) {
    const auto at = rules->find(name);
    if (at != rules->end()) return at->second;
  }
  return nullptr;
}

std::optional<std::string> twice(const std::string& whole) {
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  const bool is_whole = fault == std::errc() && end == whole.data() + whole.size();
  if (!is_whole || value > INT64_MAX / 2 || value < INT64_MIN / 2) return std::nullopt;
  return std::to_string(2 * value);
}

std::string shown_flag(const std::string& own, const std::vector<std::string>& values) {
  return fmt::format("--{}{}{}", own, values.empty() ? "" : " ", cut_text(join(values, " ")));
}

std::vector<std::string> comma_list(const std::vector<std::string>& values) {
  std::vector<std::string> out;
  for (const auto& value : values) {
    for (auto& part : trimmed_parts(value, ',')) {
      if (!part.empty()) out.push_back(std::move(part));
    }
  }
  return out;
}

}  // namespace lockstep
