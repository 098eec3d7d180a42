// Commands that people bring: DeepSpeed's and accelerate's files, YAML of flags, words of a command line, scripts.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "targets.h"
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/yaml_file.h"
#include "lockstep/dialect/shell_script.h"
#include "lockstep/dialect/stack_command.h"
#include "lockstep/dialect/translate.h"
#include "lockstep/plan/zero.h"

namespace lockstep::fuzz {
namespace {

std::string file_of(const char* name, std::string_view bytes) {
  const auto path = std::filesystem::path(fresh_folder()) / name;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

bool has_any(const std::string&) { return true; }

void deepspeed(std::string_view bytes) { (void)DeepSpeedChoice::from_flag(file_of("zero.json", bytes)); }

void accelerate(std::string_view bytes) {
  const std::string file = file_of("accelerate.yaml", bytes);
  (void)translate("sft", {"--model", "m", "--accelerate_config", file}, has_any);
}

void yaml(std::string_view bytes) {
  (void)read_yaml(file_of("flags.yaml", bytes)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A word a line.
void words(std::string_view bytes) {
  std::istringstream in{std::string(bytes)};
  std::vector<std::string> args;
  for (std::string word; std::getline(in, word);) args.push_back(word);
  for (const char* verb : {"sft", "infer", "export"}) {
    try {
      for (const auto& told : translate(verb, args, has_any).notices()) (void)told;
    } catch (const UserError&) {  // another verb may take them
    }
  }
}

void script(std::string_view bytes) {
  for (const auto& command : shell_commands(std::string(bytes))) (void)stack_command(command);
}

}  // namespace

std::vector<Target> command_targets() {
  return {{"deepspeed", deepspeed}, {"accelerate", accelerate}, {"yaml", yaml}, {"words", words}, {"script", script}};
}

}  // namespace lockstep::fuzz
