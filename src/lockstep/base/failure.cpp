#include "lockstep/base/failure.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <new>

namespace lockstep {
namespace {

bool has_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::ranges::any_of(words, [&](const char* word) { return text.find(word) != std::string::npos; });
}

/// `text`: the first line. Of NCCL the cause stands behind it.
bool is_out_of_memory(const std::string& text, const std::string& whole) {
  if (has_any(text, {"can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"})) return true;
  return text.find("NCCL error") != std::string::npos &&
         has_any(whole, {"out of memory", "Failed to CUDA calloc", "Failed to CUDA malloc", "Failed to CUDA host alloc",
                         "Failed to malloc"});
}

}  // namespace

Failure describe_failure(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    std::string message;
    for (auto it = known->frames().rbegin(); it != known->frames().rend(); ++it) message += *it + ": ";
    const bool shared = dynamic_cast<const SharedError*>(&error) != nullptr;
    return {known->code(), message + known->message(), known->hint(), shared};
  }
  const std::string whole = error.what(), text = whole.substr(0, whole.find('\n'));
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is_out_of_memory(text, whole)) {
    return {ExitCode::kMemory, "out of memory: " + text, kNeedLessMemory, false};
  }
  if (text.find("does not have a deterministic implementation") != std::string::npos) {
    return {ExitCode::kUsage, "--deterministic true: " + text, "--deterministic false goes on without the promise",
            false};
  }
  if (text.find("CUDA error: ") != std::string::npos) {
    return {ExitCode::kCommunication, "the GPU failed: " + text,
            "the same command with --resume_from_checkpoint auto goes on from the last checkpoint; whether the GPU "
            "itself is broken "
            "`nvidia-smi -q` and the kernel's log (Xid) tell. If it comes again on another one it is a bug in "
            "lockstep: please "
            "report it with what CUDA_LAUNCH_BLOCKING=1 adds to the message",
            false};
  }
  if (const auto* refused = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return {ExitCode::kUsage, refused->path1().string() + ": " + refused->code().message(),
            "is it there, may this user read and write it, and is its name a possible one?", false};
  }
  return {ExitCode::kInternal, text, "this is a bug in lockstep; please report it with the command line", false};
}

}  // namespace lockstep
