// What a rule of translate_rules works with: the flag it is called for, all that was given, and the words that come out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/dialect/translate.h"

namespace lockstep {

struct FlagRow;

class Translator {
 public:
  using Values = std::vector<std::string>;
  Translator(std::string verb, std::vector<GivenFlag> flags, std::function<bool(const std::string&)> has);

  Translation run(const std::vector<std::string>& before);

  // For rules, which are called with one flag that was given.
  Stack stack() const { return stack_; }
  const std::string& verb() const { return verb_; }
  bool trains() const { return verb_ == "sft" || verb_ == "plan"; }
  bool has(const std::string& own) const { return has_(own); }
  const GivenFlag& flag() const { return *flag_; }
  const Values& values() const { return values_; }
  std::string value() const { return values_.empty() ? "" : values_.front(); }
  bool truth() const { return value() == "true"; }
  /// Another flag, as it was given; nullptr: it was not.
  const GivenFlag* given(const std::string& name) const;
  /// Its truth value; `otherwise` where it was not given.
  bool given_truth(const std::string& name, bool otherwise) const;

  /// The flag means this. Two that mean one thing must agree.
  void mean(const std::string& own, Values values, const std::string& why = "");
  /// One of the environment's variables that families read.
  void mean_variable(const std::string& name, const std::string& value);
  /// It makes no difference.
  void note(const std::string& why);
  [[noreturn]] void refuse(const std::string& why, const std::string& instead = "leave the flag out") const;

 private:
  struct Meaning {
    Values values;
    std::string given;
  };

  void take(const GivenFlag& flag);
  bool all_harmless(const FlagRow& row) const;
  void take_row(const FlagRow& row);
  void pass_on(const GivenFlag& flag);
  const FlagRow* row_of(const std::string& name) const;
  void add_defaults();
  void add_default(const std::string& own, const std::string& value);
  void add_schedule_parts();
  void tell_version_2();
  void add_media_defaults();
  void add_saved_args();
  void add_saved(const std::string& own, const std::string& value);
  void add_saved_media(const Json& args);
  bool said(const std::string& own) const;  // by whichever word
  bool means(const std::string& own, const std::string& value) const;
  bool speaks_version_2() const;  // of ms-swift
  bool adapts() const;
  bool cuts_texts() const;
  bool cuts_ends() const;

  std::string verb_;
  std::vector<GivenFlag> flags_;
  std::function<bool(const std::string&)> has_;
  Stack stack_;
  Translation out_;
  std::map<std::string, Meaning> meanings_;  // by own flag
  std::vector<std::string> order_;           // of meanings_
  Values passed_, variables_, media_defaults_, values_;
  const GivenFlag* flag_ = nullptr;
};

using Rule = void (*)(Translator& at);
/// nullptr: there is no such rule.
Rule rule_named(const std::string& name);
/// By concept; rule_named looks in all.
const std::map<std::string, Rule>& model_rules();
const std::map<std::string, Rule>& row_rules();
const std::map<std::string, Rule>& training_rules();
const std::map<std::string, Rule>& run_rules();
const std::map<std::string, Rule>& accelerate_rules();
const std::map<std::string, Rule>& internvl_rules();
const std::map<std::string, Rule>& qwen_rules();

/// Twice a whole number; nullopt of another word.
std::optional<std::string> twice(const std::string& whole);
/// "--own value", cut where it is long.
std::string shown_flag(const std::string& own, const std::vector<std::string>& values);
/// Items of "a, b,c".
std::vector<std::string> comma_list(const std::vector<std::string>& values);

}  // namespace lockstep
