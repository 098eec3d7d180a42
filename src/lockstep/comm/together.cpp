#include "lockstep/comm/together.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {
namespace {

std::string packed(const std::optional<Failure>& failure) {
  if (!failure) return {};
  const Json json = {static_cast<int>(failure->code), failure->message, failure->hint};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Failure unpacked(const std::string& text) {
  const Json json = parse_json(text, "the failure of a rank");
  return {static_cast<ExitCode>(json[0].get<int>()), json[1].get<std::string>(), json[2].get<std::string>(), true};
}

}  // namespace

void agree_no_failure(Communicator& control, const Label& label, const std::optional<Failure>& mine) {
  const auto notes = control.all_gather_bytes(packed(mine), label);
  std::vector<std::string> failed;
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    if (!notes[rank].empty()) failed.push_back(std::to_string(rank));
  }
  if (failed.empty()) return;
  Failure first = unpacked(notes[std::stoul(failed[0])]);
  if (failed.size() < notes.size()) {
    first.message = fmt::format("rank{} {} of {}: {}", failed.size() > 1 ? "s" : "", join(failed, ", "), notes.size(),
                                first.message);
  }
  throw SharedError(first.code, first.message, first.hint);
}

void together(Communicator& control, const Label& label, const std::function<void()>& phase) {
  if (control.size() == 1) return phase();
  std::optional<Failure> failure;
  try {
    phase();
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    failure = describe_failure(error);
    if (control.recorder().watched()) control.recorder().say_last_words(*failure);  // the others may be far from here
  }
  agree_no_failure(control, label, failure);
}

}  // namespace lockstep
