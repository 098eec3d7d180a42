#include "lockstep/cli/failure.h"

#include <csignal>
#include <ctime>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pthread.h>

#include "lockstep/base/json.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/together.h"
#include "lockstep/comm/world.h"

namespace lockstep {
namespace {

World world_of(const Env& env) {
  try {
    return World::from_env(env);
  } catch (const std::exception&) {  // the very error that is being reported
    return {};
  }
}

/// Whether the launcher ends us within that time: then another rank has failed and said why.
bool ended_by_launcher(int seconds) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const timespec patience{seconds, 0};
  return ::sigtimedwait(&signals, nullptr, &patience) > 0;
}

/// Which rank tells: an error that all have, rank 0; a lost connection, whoever still lives a moment later, rank 0
/// first; any other, the rank that has it.
bool should_print(const std::exception& error, const World& world) {
  if (world.size == 1) return true;
  if (dynamic_cast<const SharedError*>(&error) != nullptr) return world.rank == 0;
  if (dynamic_cast<const CollectiveError*>(&error) != nullptr) return !ended_by_launcher(world.rank == 0 ? 1 : 3);
  if (dynamic_cast<const UserError*>(&error) != nullptr) return world.rank == 0 || !ended_by_launcher(2);
  return true;
}

/// What torchrun shows in its box. Source: torch 2.11 distributed/elastic/multiprocessing/errors/error_handler.py.
void write_error_file(const std::string& path, const std::string& message) {
  const Json record = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  try {
    write_text(path, record.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception&) {  // the error itself matters more
  }
}

}  // namespace

int report_failure(const std::string& verb, const std::exception& error, const Env& env) {
  const Failure failure = describe_failure(error);
  const World world = world_of(env);
  if (const auto path = env.text("TORCHELASTIC_ERROR_FILE")) write_error_file(*path, failure.message);
  std::cout.flush();
  if (should_print(error, world)) {
    std::string text = fmt::format("lockstep{}{}: error: {}\n", verb.empty() ? "" : " ", verb, failure.message);
    if (!failure.hint.empty()) text += fmt::format("  hint: {}\n", failure.hint);
    std::cerr << text << std::flush;
  }
  return static_cast<int>(failure.code);
}

}  // namespace lockstep
