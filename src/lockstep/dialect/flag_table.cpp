#include "lockstep/dialect/flag_table.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/dialect/flag_table_text.h"
#include "lockstep/dialect/flag_value.h"

namespace lockstep {
namespace {

template <typename T, size_t N>
T one_of(const std::array<std::pair<const char*, T>, N>& words, const std::string& word, const std::string& line) {
  const auto at = std::ranges::find(words, word, [](const auto& pair) { return std::string(pair.first); });
  check(at != words.end(), fmt::format("flag_table.txt: \"{}\" is unknown in: {}", word, line));
  return at->second;
}

FlagKind kind_of(const std::string& word, const std::string& line) {
  using enum FlagKind;
  static constexpr std::array<std::pair<const char*, FlagKind>, 8> kKinds{{{"truth", kTruth},
                                                                           {"whole", kWhole},
                                                                           {"number", kNumber},
                                                                           {"limit", kLimit},
                                                                           {"steps", kSteps},
                                                                           {"word", kWord},
                                                                           {"words", kWords},
                                                                           {"json", kJson}}};
  return one_of(kKinds, word, line);
}

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

FlagRow row_of(const std::string& kind, const std::string& does, std::string why, const std::string& line) {
  using enum FlagEffect;
  static constexpr std::array<std::pair<const char*, FlagEffect>, 6> kEffects{
      {{"own", kOwn}, {"as", kAs}, {"not", kNot}, {"none", kNone}, {"only", kOnly}, {"rule", kRule}}};
  std::vector<std::string> words = words_in(does);
  check(!words.empty(), "flag_table.txt: a line says nothing of what a flag does: " + line);
  FlagRow row{.kind = kind_of(kind, line), .effect = one_of(kEffects, words[0], line), .why = std::move(why)};
  words.erase(words.begin());
  if (row.effect == kOnly || row.effect == kOwn) {
    for (auto& word : words) row.harmless.push_back(lowered(word));
  } else {
    const size_t expected = row.effect == kNone ? 0 : 1;
    check(words.size() == expected, "flag_table.txt: too many or too few words: " + line);
    if (expected == 1) row.target = words[0];
  }
  const bool explains = row.effect == kNone || row.effect == kOnly;
  check(explains != row.why.empty(), "flag_table.txt: a reason belongs to none and only, and to nothing else: " + line);
  return row;
}

}  // namespace

const FlagTable& FlagTable::own() {
  static const FlagTable table(kFlagTableText);
  return table;
}

FlagTable::FlagTable(std::string_view text) {
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> parts = trimmed_parts(line, '|');
    check(parts.size() == 4 || parts.size() == 5, "flag_table.txt: expected four or five parts: " + line);
    parts.resize(5);
    const FlagRow row = row_of(parts[1], parts[3], parts[4], line);
    for (const auto& name : words_in(parts[2])) {
      for (const auto& stack : words_in(parts[0])) {
        check(rows_.emplace(std::pair(stack, name), row).second,
              fmt::format("flag_table.txt: {} of {} stands twice", name, stack));
      }
    }
  }
}

const FlagRow* FlagTable::find(Stack stack, std::string_view verb, const std::string& name) const {
  const std::string tag = stack_tag(stack);
  // What inherits the Trainer's arguments has those that it does not say otherwise.
  for (const std::string& key :
       {tag + "." + std::string(verb), tag, std::string(stack == Stack::kSwift ? "*" : "hf"), std::string("*")}) {
    const auto at = rows_.find({key, name});
    if (at != rows_.end()) return &at->second;
  }
  return nullptr;
}

std::vector<Stack> FlagTable::stacks_of(const std::string& name) const {
  std::vector<Stack> out;
  for (const Stack stack : kStacks) {
    if (rows_.contains({stack_tag(stack), name}) || rows_.contains({"*", name})) out.push_back(stack);
  }
  return out;
}

std::vector<std::string> FlagTable::names() const {
  std::set<std::string> names;
  for (const auto& [key, row] : rows_) names.insert(key.second);
  return {names.begin(), names.end()};
}

}  // namespace lockstep
