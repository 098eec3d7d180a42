#include "lockstep/tensor/block_arena.h"

#include <algorithm>
#include <iterator>
#include <new>

#include <sys/mman.h>

namespace lockstep {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRegion = size_t{1} << 36;  // of addresses: they cost nothing until they are written to

uintptr_t page_from(uintptr_t address) { return address / kPage * kPage; }
uintptr_t page_behind(uintptr_t address) { return page_from(address + kPage - 1); }

}  // namespace

BlockArena::~BlockArena() {
  if (hollow_) return;
  for (const auto& [begin, size] : regions_) ::munmap(reinterpret_cast<void*>(begin), size);
}

void BlockArena::add_region(size_t bytes) {
  bytes = page_behind(bytes);
  // Where a process may have few addresses (ulimit -v), or the system promises no more than it has, less must do.
  for (size_t size = std::max(kRegion, bytes);; size = std::max(size / 4, bytes)) {
    void* region =
        reinterpret_cast<void*>(regions_.empty() ? kPage : regions_.back().first + regions_.back().second + kPage);
    if (!hollow_) {
      region = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (region != MAP_FAILED) {
      if (!hollow_) ::madvise(region, size, MADV_HUGEPAGE);
      const auto begin = reinterpret_cast<Address>(region);
      regions_.emplace_back(begin, size);
      insert(begin, begin + size, /*backed=*/false);
      return;
    }
    if (size == bytes) throw std::bad_alloc();
  }
}

void BlockArena::insert(Address begin, Address end, bool backed) {
  if (begin == end) return;
  auto behind = free_.lower_bound(begin);
  if (behind != free_.end() && behind->first == end && behind->second.backed == backed) {
    end = behind->second.end;
    erase(behind++);
  }
  if (behind != free_.begin()) {
    const auto before = std::prev(behind);
    if (before->second.end == begin && before->second.backed == backed) {
      begin = before->first;
      erase(before);
    }
  }
  free_.emplace(begin, Stretch{end, backed});
  if (backed) backed_by_size_.emplace(end - begin, begin);
}

void BlockArena::erase(Stretches::iterator at) {
  if (at->second.backed) backed_by_size_.erase({at->second.end - at->first, at->first});
  free_.erase(at);
}

/// The smallest stretch of backed memory that has room; else where most of the block would stand on backed memory, at
/// either end of adjoining stretches. 0: no place.
BlockArena::Address BlockArena::best_place(size_t bytes) const {
  const auto fitting = backed_by_size_.lower_bound({bytes, 0});
  if (fitting != backed_by_size_.end()) return fitting->second;
  Address best = 0;
  size_t most_backed = 0;
  for (auto first = free_.begin(); first != free_.end();) {
    auto last = first;  // [first, last]: adjoining
    for (auto next = std::next(last); next != free_.end() && next->first == last->second.end; ++next) last = next;
    const Address begin = first->first, end = last->second.end;
    if (end - begin >= bytes) {
      const auto look = [&](Address from) {
        size_t backed = 0;
        for (auto at = first; at != std::next(last); ++at) {
          if (!at->second.backed) continue;
          const Address low = std::max(from, at->first), high = std::min(from + bytes, at->second.end);
          if (low < high) backed += high - low;
        }
        if (best != 0 && backed <= most_backed) return;
        best = from;
        most_backed = backed;
      };
      look(begin);
      look((end - bytes) / kQuantum * kQuantum);
    }
    first = std::next(last);
  }
  return best;
}

/// Takes [begin, end) out of the free stretches that hold it; its pages count as held from now on.
void BlockArena::cut_out(Address begin, Address end) {
  Address high = 0;
  for (Address low = std::prev(free_.upper_bound(begin))->first; low < end; low = high) {
    const auto at = free_.find(low);  // anew: what stays of one stretch may grow together with the next
    high = at->second.end;
    const bool backed = at->second.backed;
    erase(at);
    // Of an unbacked stretch, whose ends are those of pages, the pages that the block touches become backed as a whole.
    const Address from = backed ? std::max(low, begin) : std::max(low, page_from(begin));
    const Address to = backed ? std::min(high, end) : std::min(high, page_behind(end));
    if (!backed) held_ += to - from;
    insert(low, from, backed);
    if (from < begin) insert(from, begin, /*backed=*/true);
    if (to > end) insert(end, to, /*backed=*/true);
    insert(to, high, backed);
  }
}

void* BlockArena::take(size_t bytes, size_t room) {
  Address place = best_place(bytes);
  if (place == 0) {
    add_region(bytes);
    place = best_place(bytes);
  }
  cut_out(place, place + bytes);
  if (held_ > room) give_back_pages(held_ - room);
  return reinterpret_cast<void*>(place);
}

void BlockArena::give(void* block, size_t bytes) {
  const auto begin = reinterpret_cast<Address>(block);
  insert(begin, begin + bytes, /*backed=*/true);
}

/// From the smallest stretch that has enough whole pages, else from the largest ones.
void BlockArena::give_back_pages(size_t bytes) {
  bytes = page_behind(bytes);
  while (bytes > 0 && !backed_by_size_.empty()) {
    auto chosen = backed_by_size_.lower_bound({bytes + kPage, 0});
    if (chosen == backed_by_size_.end()) --chosen;
    const Address begin = chosen->second, end = begin + chosen->first;
    const Address low = page_behind(begin), high = std::max(low, std::min(page_from(end), low + bytes));
    if (low == high) return;  // the largest has no whole page
    erase(free_.find(begin));
    insert(begin, low, /*backed=*/true);
    insert(high, end, /*backed=*/true);
    insert(low, high, /*backed=*/false);
    if (!hollow_) {
      ::madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED);
      // Or the kernel makes a huge page of what stays around it, some seconds later, and has then given all of it again.
      ::madvise(reinterpret_cast<void*>(low), high - low, MADV_NOHUGEPAGE);
    }
    held_ -= high - low;
    bytes -= high - low;
  }
}

}  // namespace lockstep
