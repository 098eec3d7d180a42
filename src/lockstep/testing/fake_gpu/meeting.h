// Where the ranks of a fake group meet, threads of one process or processes of one machine: memory that all of them see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace c10d {
class Store;
}

namespace lockstep::fake_gpu {

/// One rank's part of a group's meetings. A rank has one meeting for each of its devices, as NCCL has a communicator for
/// each: calls of two are not ordered among each other. Of one meeting every rank makes the same calls in the same order.
class Meetings {
 public:
  static constexpr int kMostDevices = 8;

  /// Collective over the ranks of `store`.
  Meetings(c10d::Store& store, int rank, int size);
  ~Meetings();
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  using Read = std::function<void(const std::vector<const void*>& of_ranks)>;
  /// `read` is called when every rank has given its bytes. Throws when this rank has aborted.
  void meet(int device_of_rank, const void* mine, size_t bytes, const Read& read);

  /// Calls under way and later break on this rank; from any thread. The others wait on, as NCCL's do.
  void abort() { aborted_ = true; }

 private:
  struct Board;
  Board& board(int device_of_rank) const;
  char* slot(int device_of_rank, int rank, int64_t round) const;
  template <typename Condition>
  void wait_until(const Condition& condition) const;

  const int rank_, size_;
  char* shared_ = nullptr;
  std::vector<int64_t> rounds_ = std::vector<int64_t>(kMostDevices, 0);  // by device; of its stream's thread alone
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::fake_gpu
