#include "lockstep/cli/failure.h"

#include <ctime>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

constexpr auto kEndingPatience = std::chrono::seconds(10);

}  // namespace

const std::shared_ptr<Recorder>& process_recorder() {
  static const auto* recorder =
      new std::shared_ptr<Recorder>(std::make_shared<Recorder>());  // threads read it to the end
  return *recorder;
}

// Source of the form: torch 2.11 distributed/elastic/multiprocessing/errors/error_handler.py.
void write_error_file(const std::string& path, const std::string& message) {
  const Json record = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  try {
    write_text(path, record.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception&) {  // the error itself matters more
  }
}

int report_failure(const std::string& verb, const std::exception& error, const Env& env) {
  const Failure failure = describe_failure(error);
  Recorder& recorder = *process_recorder();
  recorder.say_last_words(failure);
  const auto ending = recorder.await_ending(kEndingPatience);
  if (const auto path = env.text("TORCHELASTIC_ERROR_FILE")) {
    write_error_file(*path, ending ? std::string(ending->message.view()) : failure.message);
  }
  std::cout.flush();
  if (ending) return static_cast<int>(ending->exit_code);
  std::string text = fmt::format("lockstep{}{}: error: {}\n", verb.empty() ? "" : " ", verb, failure.message);
  if (!failure.hint.empty()) text += fmt::format("  hint: {}\n", failure.hint);
  std::cerr << text << std::flush;
  return static_cast<int>(failure.code);
}

}  // namespace lockstep
