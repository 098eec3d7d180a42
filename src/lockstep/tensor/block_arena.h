// Where the bytes of a host's large tensors stand: stretches of reserved addresses, taken and given back in any order.
// Freed memory waits for the next taker of any size: neighbours grow together again, and a block may stand on what several
// others left. Pages that no one needs go back to the system when more than the caller's room would be held.
//
// Example:
//   BlockArena arena;
//   void* block = arena.take(bytes, /*room=*/most_alive + most_alive / 16);
//   arena.give(block, bytes);                              // arena.held() says what the process still has of the system
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace lockstep {

/// Not thread-safe.
class BlockArena {
 public:
  static constexpr size_t kQuantum = 64;  // blocks begin at multiples of it

  /// Hollow: addresses alone, that nobody may write to; so a rehearsal knows what a process will hold.
  explicit BlockArena(bool hollow = false) : hollow_(hollow) {}
  ~BlockArena();
  BlockArena(const BlockArena&) = delete;
  BlockArena& operator=(const BlockArena&) = delete;

  /// `bytes` > 0, a multiple of kQuantum. What is held may pass `room` only while nothing is free. Throws std::bad_alloc when
  /// the system gives no more addresses.
  void* take(size_t bytes, size_t room);
  /// A block of take(), of the same size.
  void give(void* block, size_t bytes);

  /// Bytes of the pages that blocks stand on or did, less what went back: what the system has given.
  size_t held() const { return held_; }

 private:
  using Address = uintptr_t;
  struct Stretch {  // of free addresses
    Address end;
    bool backed;  // its pages may hold memory
  };
  using Stretches = std::map<Address, Stretch>;  // by their beginning; neighbours differ in `backed`

  void add_region(size_t bytes);
  Address best_place(size_t bytes) const;
  void cut_out(Address begin, Address end);
  void insert(Address begin, Address end, bool backed);
  void erase(Stretches::iterator at);
  void give_back_pages(size_t bytes);

  bool hollow_;
  Stretches free_;
  std::set<std::pair<size_t, Address>> backed_by_size_;
  std::vector<std::pair<Address, size_t>> regions_;
  size_t held_ = 0;
};

}  // namespace lockstep
