// One piece of memory that all ranks of a host read and write: weights stand there once.
//
// It has no name and takes no room of /dev/shm, which containers keep small: rank 0 makes it, the others open it through
// /proc, and it goes with the last process that holds it.
//
// Example:
//   auto memory = SharedMemory::among(control);    // nullptr: these ranks do not see one memory
//   memory->grow(bytes);
//   std::memcpy(memory->bytes() + mine.begin, …);  // each rank its part
//   control.barrier("weights");
//   memory->protect();                             // where nobody writes any more
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/base/process.h"

namespace lockstep {

class Communicator;

class SharedMemory {
 public:
  /// Without bytes as yet. nullptr on every rank when one of them cannot open it: ranks of several hosts, containers
  /// that do not see each other's processes, a kernel that forbids it. Collective.
  static std::unique_ptr<SharedMemory> among(Communicator& control);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Once, on every rank with the same number: so many bytes, zeros, whose pages are taken when they are first written.
  /// Throws UserError(kMemory).
  void grow(int64_t bytes);
  std::byte* bytes() const { return bytes_; }
  int64_t size() const { return size_; }

  /// This process writes there no more: a stray write ends it, in place of giving every rank wrong numbers.
  void protect();

 private:
  explicit SharedMemory(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
  std::byte* bytes_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace lockstep
