#include "lockstep/session/rank_main.h"

#include <iostream>

#include <fmt/format.h>

#include "lockstep/base/error_file.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr auto kEndingPatience = std::chrono::seconds(10);

}  // namespace

int report_failure(const std::string& program, const Env& env, Recorder& recorder, const std::exception& error,
                   const TellFailure& tell) {
  const Failure failure = describe_failure(error);
  recorder.say_last_words(failure);
  const auto ending = recorder.await_ending(kEndingPatience);
  if (const auto path = env.text("TORCHELASTIC_ERROR_FILE")) {
    write_error_file(*path, ending ? std::string(ending->message.view()) : failure.message);
  }
  std::cout.flush();
  if (ending) return static_cast<int>(ending->exit_code);
  if (tell && tell(failure, error)) return static_cast<int>(failure.code);
  std::string text = fmt::format("{}: error: {}\n", program, failure.message);
  if (!failure.hint.empty()) text += fmt::format("  hint: {}\n", failure.hint);
  std::cerr << shown_text(text) << std::flush;
  return static_cast<int>(failure.code);
}

int rank_main(const std::string& program, const Env& env, Recorder& recorder, const std::function<int()>& body,
              const TellFailure& tell) {
  try {
    const int code = body();
    if (!recorder.watched()) return code;
    recorder.finish(code);
    return recorder.has_ending() ? static_cast<int>(recorder.board().ending.read_any().exit_code) : code;
  } catch (const std::exception& error) {
    return report_failure(program, env, recorder, error, tell);
  }
}

}  // namespace lockstep
