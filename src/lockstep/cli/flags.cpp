#include "lockstep/cli/flags.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::string> known_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

UserError unknown_flag(const CLI::App& app) {
  const auto rest = app.remaining();
  const auto flag =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
  const std::string help = fmt::format("{} --help lists all", app.get_name());
  if (flag == rest.end()) {
    return usage_error(fmt::format("{}: \"{}\" is not expected here", app.get_name(), rest.empty() ? "" : rest.front()),
                       help);
  }
  const std::string name = flag->substr(0, flag->find('='));
  const std::string nearest = nearest_name(name, known_flags(app));
  return usage_error(fmt::format("{}: unknown flag {}", app.get_name(), name),
                     nearest.empty() ? help : fmt::format("did you mean {}? {}", nearest, help));
}

/// A flag's text as the JSON value it spells.
Json typed(const std::string& text) {
  const Json parsed = parse_json_or_discard(text);
  return parsed.is_boolean() || parsed.is_number() ? parsed : Json(text);
}

}  // namespace

bool parse_flags(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ExtrasError&) {
    throw unknown_flag(app);
  } catch (const CLI::RequiredError& e) {
    if (!app.remaining().empty()) throw unknown_flag(app);  // a slip in the name of the very flag that is missed
    throw usage_error(fmt::format("{}: {}", app.get_name(), e.what()), fmt::format("{} --help", app.get_name()));
  } catch (const CLI::ParseError& e) {
    throw usage_error(fmt::format("{}: {}", app.get_name(), e.what()), fmt::format("{} --help", app.get_name()));
  }
  return true;
}

Json flags_as_json(const CLI::App& app) {
  Json json = Json::object();
  for (const auto* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_group().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    const auto values = option->count() > 0 ? option->results() : std::vector<std::string>{};
    const bool list = option->get_items_expected_max() > 1;
    if (list) {
      json[name] = values;
    } else if (!values.empty()) {
      json[name] = typed(values.back());
    } else {
      json[name] = option->get_default_str().empty() ? Json(nullptr) : typed(option->get_default_str());
    }
  }
  return json;
}

}  // namespace lockstep
