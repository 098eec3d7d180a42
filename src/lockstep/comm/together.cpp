#include "lockstep/comm/together.h"

#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {
namespace {

constexpr const char* kMemoryHint =
    "a higher ZeRO stage, more ranks, a smaller batch or --max_length need less; `lockstep plan` shows how much";

bool is_out_of_memory(const std::string& text) {
  return text.find("can't allocate memory") != std::string::npos || text.find("out of memory") != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string packed(const std::optional<Failure>& failure) {
  if (!failure) return {};
  const Json json = {static_cast<int>(failure->code), failure->message, failure->hint};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Failure unpacked(const std::string& text) {
  const Json json = Json::parse(text);
  return {static_cast<ExitCode>(json[0].get<int>()), json[1].get<std::string>(), json[2].get<std::string>()};
}

}  // namespace

Failure describe_failure(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    std::string message;
    for (auto it = known->frames().rbegin(); it != known->frames().rend(); ++it) message += *it + ": ";
    return {known->code(), message + known->message(), known->hint()};
  }
  const std::string text = first_line(error.what());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is_out_of_memory(text)) {
    return {ExitCode::kMemory, "out of memory: " + text, kMemoryHint};
  }
  return {ExitCode::kInternal, text, "this is a bug in lockstep; please report it with the command line"};
}

void agree_no_failure(Communicator& control, std::string_view label, const std::optional<Failure>& mine) {
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

void together(Communicator& control, std::string_view label, const std::function<void()>& phase) {
  if (control.size() == 1) return phase();
  std::optional<Failure> failure;
  try {
    phase();
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    failure = describe_failure(error);
  }
  agree_no_failure(control, label, failure);
}

}  // namespace lockstep
