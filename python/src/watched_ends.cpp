// How a rank ends: with words of its own, with none, or because another has ended.
#include <cstdlib>
#include <functional>
#include <utility>

#include "held_signals.h"
#include "watched_calls.h"
#include <fmt/format.h>

#include "lockstep/guard/asked_to_end.h"

namespace lockstep::python {

void WatchedCalls::say_last_words(const std::string& message, const std::string& place, bool secondary, int exit_code) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  if (!place.empty()) recorder_.stand_at(place);
  recorder_.say_last_words({.code = static_cast<ExitCode>(exit_code), .message = message, .hint = {}}, secondary);
}

void WatchedCalls::wait_in_last_call() {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  for (int index = 0; index < groups_.count(); ++index) {
    const auto last = recorder_.ring(index).last(1);
    if (last.empty() || last[0].state == CallState::kDone) continue;
    recorder_.device_waits(index, last[0].seq, Clock::time_point(std::chrono::nanoseconds(last[0].entered_ns)));
  }
}

void WatchedCalls::await_cause() {
  wait_in_last_call();
  (void)await_ending(1.5);
}

std::optional<std::string> WatchedCalls::await_ending(double seconds) {
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto ending = recorder_.await_ending(patience);
  return ending ? std::make_optional(std::string(ending->message.view())) : std::nullopt;
}

bool WatchedCalls::last_call_failed() {
  const std::lock_guard lock(mutex_);
  for (int index = 0; index < groups_.count(); ++index) {
    const auto last = recorder_.ring(index).last(1);
    if (!last.empty() && last[0].state == CallState::kFailed) return true;
  }
  return false;
}

void WatchedCalls::finish(int exit_code, const std::string& place) {
  leaving_ = true;
  // Somebody else's end may be why, and the code that Python ends with says whether that was borne.
  const bool code_tells = exit_code < 0 && joined() && last_call_failed();
  const auto end = [this, place](int code) {
    if (!joined()) return;
    if (!place.empty()) {
      const std::lock_guard lock(mutex_);
      recorder_.enter_phase(Phase::kEnd, place);
    }
    recorder_.finish(code);
  };
  if (!code_tells) end(exit_code);
  if (exit_code < 0) {
    at_last([this, code_tells, end](int status) {
      if (!code_tells) return tell_code(status);
      if (status != 0) await_cause();
      end(status);
    });
  }
}

void WatchedCalls::leave() {
  if (!joined()) return;
  leaving_ = true;
  recorder_.lack_room(Board::kNoPairs | Board::kNoGroups);  // of what it does in others nobody hears
  recorder_.finish(kAskedToEnd);                            // it goes on, and is no rank that had fewer steps
  joined_ = false;
}

/// Of whoever left without a word: a job that goes wrong by it is ended with what the code says.
void WatchedCalls::tell_code(int code) {
  recorder_.board().exit_code.store(code);
  if (code != 0) (void)await_ending(1.0);
}

void WatchedCalls::end_with(const std::string& message, const std::string& place, bool secondary, int code) {
  leaving_ = true;
  // As Recorder says them, but by a handler.
  const std::string where = place.empty() ? "" : fmt::format(" ({})", place);
  say_if_aborted({.exit_code = code,
                  .secondary = secondary ? 1U : 0U,
                  .message = FixedText<4096>(message),
                  .place = FixedText<256>(std::string(phase_text(recorder_.phase())) + where)});
  at_last([this, message, place, secondary, code](int status) {
    (void)take_back_words();
    if (status == code) {
      if (secondary) await_cause();
      say_last_words(message, place, secondary, code);
      (void)await_ending(secondary ? 3.0 : 1.0);
    }
    finish(status);
  });
}

void WatchedCalls::at_last(std::function<void(int)> last) {
  static auto& words = *new std::function<void(int)>;
  words = std::move(last);
  [[maybe_unused]] static const int once = ::on_exit(
      [](int status, void* /*nothing*/) {
        if (instance().joined()) words(status);  // else a child that was forked
      },
      nullptr);
}

}  // namespace lockstep::python
