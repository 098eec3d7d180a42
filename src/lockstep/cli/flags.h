// Flags of a verb: CLI11 with Lockstep's errors, so that a slip of the finger is met with the nearest name.
//
// Flags keep ms-swift's spelling (--output_dir) and booleans are values (--flag true).
//
// Example:
//   CLI::App app(init_summary, "lockstep init");
//   app.add_option("--output_dir", dir, "where to write")->required();
//   if (!parse_flags(app, args)) return 0;      // help was printed
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
class Option;
}  // namespace CLI

namespace lockstep {

/// Names of the flags that most people need; empty: all.
using UsualFlags = std::vector<std::string>;

/// Flags as other stacks spell and name them (dialect/translate.h), for a verb that they have too.
struct OtherStacks {
  std::string verb;                   // as flag_table.txt calls it
  std::vector<std::string> notices;   // what was understood, to be told once
  std::set<std::string> unsaid = {};  // flags that nobody gave: what that stack does where nothing is said
};

/// False when --help was asked for and printed: the usual flags, and all with
/// `--help all` or --help-all. Throws UserError(kUsage): an unknown flag (with the nearest), a value of the wrong kind, a
/// required flag that is missing.
bool parse_flags(CLI::App& app, const std::vector<std::string>& args, const UsualFlags& usual = {},
                 OtherStacks* others = nullptr);

/// A flag whose value is a word, or a number of which some mean more than a count ("auto", a part of all steps). `read` keeps
/// what it means, and returns what it is not: "" where it was taken. args.json keeps the text itself, since what it means
/// could not be read again. `standard`: the text that the default would be.
CLI::Option* add_word_flag(CLI::App& app, const std::string& names, const std::string& type,
                           const std::string& standard, const std::string& help,
                           const std::function<std::string(const std::string& text)>& read);

/// What every flag of the app is now, given or default, as args.json keeps it.
Json flags_as_json(const CLI::App& app);

}  // namespace lockstep
