// Errors that say who, expected, found, where, and then what to do.
//
// Use UserError for what a person can mend (flags, data, checkpoints), InternalError (through check) for a bug of ours.
// A catcher adds a frame, translates at a border, or is a destructor; nothing else.
//
// Example:
//   throw data_error("train.jsonl:17: field \"images\": expected a list of paths, found a number", "write
//   [\"a.png\"]"); try { load(shard); } catch (Error& e) { e.add_frame("loading shard 2 of 4"); throw; }
#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What the process tells the shell. Source: DESIGN, "Contracts that people see".
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,
  kData = 3,
  kCheckpoint = 4,
  kMemory = 5,
  kCommunication = 6,
  kNumerics = 7,
  kInternal = 70,
  kInterrupted = 130,
};

/// Base of all errors: message, hint, and the frames that catchers added on the way up (innermost first).
class Error : public std::exception {
 public:
  Error(ExitCode code, std::string message, std::string hint = {});

  const char* what() const noexcept override;  // "while F: ...: message; hint: ..."
  ExitCode code() const noexcept;
  const std::string& message() const noexcept;
  const std::string& hint() const noexcept;
  const std::vector<std::string>& frames() const noexcept;
  void add_frame(std::string frame);

 private:
  void render();

  ExitCode code_;
  std::string message_;
  std::string hint_;
  std::vector<std::string> frames_;
  std::string text_;
};

/// A person can mend it: the message suffices, no stack.
class UserError : public Error {
 public:
  using Error::Error;
};

/// A bug of ours; carries the place.
class InternalError : public Error {
 public:
  InternalError(std::string message, std::source_location where);
};

UserError usage_error(std::string message, std::string hint = {});
UserError data_error(std::string message, std::string hint = {});
UserError checkpoint_error(std::string message, std::string hint = {});

/// Throws InternalError with the caller's place when `ok` is false.
void check(bool ok, std::string_view message, std::source_location where = std::source_location::current());

/// The candidate nearest to `word` by edit distance, or "" when none is close enough to be a slip of the finger.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
