#include "lockstep/comm/backend_shm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/rank_sum.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/shm_segment.h"
#include "lockstep/comm/world.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr uint64_t kSlots = kShmSlots;
constexpr int64_t kHeadroom = 2;  // a group takes half of what is free: others come
constexpr int64_t kLeastSlotBytes = int64_t{64} << 10;

using Segments = std::vector<std::unique_ptr<ShmSegment>>;

/// An empty tensor has no memory, which memcpy must not be given.
void copy_bytes(void* to, const void* from, int64_t size) {
  if (size > 0) std::memcpy(to, from, static_cast<size_t>(size));
}

char* bytes_of(const Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

class ShmWork;

/// A stretch of a call that fits a slot: how to fill the slot, and what to do when all slots of its number are there.
struct Chunk {
  uint64_t seq = 0;
  std::function<void(char* slot)> fill;  // empty: the slot is filled already
  std::function<void()> take;
  ShmWork* work = nullptr;  // whose call it is; none when that was given up
  bool posted = false;
};

class ShmBackend;

/// Bytes move only while a rank is in a call, of which this may be another: each stretch says what it took.
class ShmWork final : public Work {
 public:
  explicit ShmWork(ShmBackend& home) : home_(home) {}
  ~ShmWork() override;
  void finish(Clock::duration patience) override;
  TransportTimes times() const override { return times_; }

  void ends_with(uint64_t seq) { last_ = seq; }
  void took(Clock::duration late, Clock::duration all) {
    times_.late += late;
    times_.busy += all;
  }

 private:
  ShmBackend& home_;
  uint64_t last_ = 0;
  TransportTimes times_{.busy_told = true, .late_told = true};
};

class ShmBackend final : public Backend {
 public:
  ShmBackend(int rank, Segments segments, int64_t slot_bytes, Clock::duration patience)
      : rank_(rank), segments_(std::move(segments)), slot_bytes_(slot_bytes), patience_(patience) {}

  ~ShmBackend() override { leave(); }

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    check(full.is_contiguous() && shard.is_contiguous(), "shared memory gathers contiguous tensors");
    const int64_t part = static_cast<int64_t>(shard.nbytes());
    return launch(part, slot_bytes_, [&](int64_t begin, int64_t size) {
      return Chunk{.fill = [=](char* slot) { copy_bytes(slot, bytes_of(shard) + begin, size); },
                   .take =
                       [=, this, seq = next_] {
                         for (int r = 0; r < world(); ++r) {
                           char* to = bytes_of(full) + r * part + begin;
                           const char* from = r == rank_ ? bytes_of(shard) + begin : slot(r, seq);
                           if (to != from) copy_bytes(to, from, size);
                         }
                       }};
    });
  }

  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    check(sum.is_contiguous() && staged.is_contiguous(), "shared memory reduces contiguous tensors");
    const Dtype dtype = dtype_of(staged);
    const int64_t width = dtype_bytes(dtype), part = sum.numel();
    if (staged_.defined() && staged.data_ptr() == staged_.data_ptr()) {
      staged_ = Tensor();
      return launch(part, part, [&](int64_t, int64_t) {
        return Chunk{.fill = {}, .take = [=, this, seq = next_] { add(sum, seq, dtype, accumulate); }};
      });
    }
    const int64_t most = slot_bytes_ / (width * world());
    return launch(part, most, [&](int64_t begin, int64_t size) {
      return Chunk{.fill =
                       [=, this](char* slot) {
                         for (int r = 0; r < world(); ++r) {
                           if (r == rank_) continue;  // added from where it is
                           copy_bytes(slot + r * size * width, bytes_of(staged) + (r * part + begin) * width,
                                      size * width);
                         }
                       },
                   .take =
                       [=, this, seq = next_] {
                         add(sum.narrow(0, begin, size), seq, dtype, accumulate,
                             bytes_of(staged) + (rank_ * part + begin) * width);
                       }};
    });
  }

  std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) override {
    const Tensor flat = value.view({-1});
    const Dtype dtype = dtype_of(value);
    const int64_t width = dtype_bytes(dtype);
    return launch(flat.numel(), slot_bytes_ / width, [&](int64_t begin, int64_t size) {
      return Chunk{.fill = [=](char* slot) { copy_bytes(slot, bytes_of(flat) + begin * width, size * width); },
                   .take =
                       [=, this, seq = next_] {
                         reduce_in_rank_order(bytes_of(flat) + begin * width, parts(seq, 0), dtype, size, maximum);
                       }};
    });
  }

  std::unique_ptr<Work> broadcast(const Tensor& value, int root) override {
    const int64_t total = static_cast<int64_t>(value.nbytes());
    return launch(total, slot_bytes_, [&](int64_t begin, int64_t size) {
      return Chunk{.fill =
                       [=, this](char* slot) {
                         if (rank_ == root) copy_bytes(slot, bytes_of(value) + begin, size);
                       },
                   .take =
                       [=, this, seq = next_] {
                         if (rank_ != root) copy_bytes(bytes_of(value) + begin, slot(root, seq), size);
                       }};
    });
  }

  Tensor staging(int64_t numel, int scalar_type) override {
    const auto type = static_cast<at::ScalarType>(scalar_type);
    check(numel * static_cast<int64_t>(c10::elementSize(type)) <= slot_bytes_, "staging larger than a slot");
    const Deadline deadline(patience_);
    make_room(next_, deadline);
    staged_ = at::from_blob(slot(rank_, next_), {numel}, at::TensorOptions().dtype(type));
    return staged_;
  }

  int64_t max_staging_bytes() const override { return slot_bytes_; }
  std::string name() const override { return "shared memory"; }

  void abort() override {
    aborted_ = true;
    leave();
  }

  void finish_through(uint64_t seq, Clock::duration patience) {
    const Deadline deadline(patience);
    while (!pending_.empty() && pending_.front().seq <= seq) complete_front(deadline);
  }

  void forget(const ShmWork* work) {
    for (auto& chunk : pending_) {
      if (chunk.work == work) chunk.work = nullptr;
    }
  }

 private:
  int world() const { return static_cast<int>(segments_.size()); }
  ShmSegment& segment(int r) const { return *segments_[static_cast<size_t>(r)]; }
  char* slot(int r, uint64_t seq) const { return segment(r).slot(seq); }

  std::vector<const void*> parts(uint64_t seq, int64_t offset) const {
    std::vector<const void*> all;
    all.reserve(segments_.size());
    for (int r = 0; r < world(); ++r) all.push_back(slot(r, seq) + offset);
    return all;
  }

  /// `own`: this rank's part where it is not in its slot.
  void add(const Tensor& sum, uint64_t seq, Dtype dtype, bool accumulate, const char* own = nullptr) const {
    const int64_t size = sum.numel();
    auto all = parts(seq, rank_ * size * dtype_bytes(dtype));
    if (own != nullptr) all[static_cast<size_t>(rank_)] = own;
    sum_in_rank_order(static_cast<float*>(sum.data_ptr()), all, dtype, size, accumulate);
  }

  /// Cuts [0, total) into chunks, enters them, and sends as many as need no waiting.
  template <typename MakePiece>
  std::unique_ptr<Work> launch(int64_t total, int64_t most, MakePiece&& make_piece) {
    check(!staged_.defined(), "a call between staging() and its reduce_scatter()");
    auto work = std::make_unique<ShmWork>(*this);
    for (int64_t begin = 0; begin == 0 || begin < total; begin += std::max<int64_t>(most, 1)) {
      Chunk chunk = make_piece(begin, std::min(most, total - begin));
      chunk.seq = next_++;
      chunk.work = work.get();
      pending_.push_back(std::move(chunk));
    }
    for (auto& chunk : pending_) {
      if (!chunk.posted && !post(chunk)) break;
    }
    work->ends_with(next_ - 1);
    return work;
  }

  bool has_room(uint64_t seq) const {
    if (seq <= kSlots) return true;
    return std::all_of(segments_.begin(), segments_.end(), [&](const auto& peer) {
      return peer->control().consumed.load(std::memory_order_acquire) >= seq - kSlots;
    });
  }

  /// Sends a chunk if its slot is free. A chunk that was staged is in its slot already.
  bool post(Chunk& chunk) {
    if (!has_room(chunk.seq)) return false;
    if (chunk.fill) chunk.fill(slot(rank_, chunk.seq));
    segment(rank_).control().posted.store(chunk.seq, std::memory_order_release);
    segment(rank_).signal();
    chunk.posted = true;
    return true;
  }

  /// Frees the slot of `seq`: completes this rank's own earlier chunks, then waits for the peers'.
  void make_room(uint64_t seq, const Deadline& deadline) {
    while (!pending_.empty() && (!pending_.back().posted || pending_.front().seq + kSlots <= seq))
      complete_front(deadline);
    if (seq <= kSlots) return;
    for (int r = 0; r < world(); ++r) {
      segment(r).wait_for(segment(r).control().consumed, seq - kSlots, deadline, aborted_, r);
    }
  }

  void complete_front(const Deadline& deadline) {
    Chunk& chunk = pending_.front();
    const auto begun = Clock::now();
    if (!chunk.posted) {
      for (int r = 0; r < world(); ++r) {
        segment(r).wait_for(segment(r).control().consumed, chunk.seq - kSlots, deadline, aborted_, r);
      }
      post(chunk);
    }
    for (int r = 0; r < world(); ++r)
      segment(r).wait_for(segment(r).control().posted, chunk.seq, deadline, aborted_, r);
    const auto all_there = Clock::now();
    chunk.take();
    segment(rank_).control().consumed.store(chunk.seq, std::memory_order_release);
    segment(rank_).signal();
    if (chunk.work != nullptr) chunk.work->took(all_there - begun, Clock::now() - begun);
    pending_.pop_front();
    for (auto& next : pending_) {  // what waited for this slot
      if (!next.posted && !post(next)) break;
    }
  }

  void leave() {
    segment(rank_).control().left = 1;
    segment(rank_).signal();
  }

  int rank_;
  Segments segments_;
  int64_t slot_bytes_;
  Clock::duration patience_;
  uint64_t next_ = 1;
  std::deque<Chunk> pending_;
  Tensor staged_;
  std::atomic<bool> aborted_{false};
};

ShmWork::~ShmWork() { home_.forget(this); }
void ShmWork::finish(Clock::duration patience) { home_.finish_through(last_, patience); }

/// The largest slot that leaves half of what is free, shared among the ranks; 0 when that is too little.
int64_t affordable_slot(int64_t wanted, int world) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return 0;
  const auto free_bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  const int64_t fits = free_bytes / kHeadroom / world / kShmSlots / 4096 * 4096;
  return std::min(wanted, fits) >= kLeastSlotBytes ? std::min(wanted, fits) : 0;
}

}  // namespace

ShmNeed shm_need(int ranks, int64_t slot_bytes) {
  const auto slots = kShmSlots * ranks;
  return {.wanted = kHeadroom * slots * slot_bytes, .least = kHeadroom * slots * std::min(slot_bytes, kLeastSlotBytes)};
}

namespace {

/// Ranks with the same word run under one kernel and see each other's process ids.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  std::array<char, 64> name_space{};
  const auto length = ::readlink("/proc/self/ns/pid", name_space.data(), name_space.size());
  return id + " " + std::string(name_space.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

/// Every rank's word under `key`, in rank order.
std::vector<std::string> exchange(Rendezvous& rendezvous, const World& world, const std::string& key,
                                  const std::string& mine, Clock::duration patience) {
  rendezvous.set(fmt::format("{}/{}", key, world.rank), mine);
  std::vector<std::string> all;
  all.reserve(static_cast<size_t>(world.size));
  for (int r = 0; r < world.size; ++r) all.push_back(rendezvous.get(fmt::format("{}/{}", key, r), patience));
  return all;
}

}  // namespace

std::unique_ptr<Backend> make_shm_backend(const World& world, Rendezvous& rendezvous, const ShmOptions& options) {
  const auto agree = [&](const std::string& key, const std::string& mine) {
    return exchange(rendezvous, world, options.name + "/shm/" + key, mine, options.connecting);
  };
  const std::string mine = fmt::format("{}|{}", host_id(), affordable_slot(options.slot_bytes, world.size));
  int64_t slot_bytes = options.slot_bytes;
  for (const auto& word : agree("host", mine)) {
    if (word.substr(0, word.find('|')) != host_id()) slot_bytes = 0;
    slot_bytes = std::min(slot_bytes, static_cast<int64_t>(std::stoll(word.substr(word.find('|') + 1))));
  }
  if (slot_bytes == 0) return nullptr;
  // The clock keeps apart groups that threads of one process make, and what a killed process of the same id left.
  const std::string path = fmt::format("/lockstep-{}-{}-{}-{:x}", ::getpid(), options.name, world.rank,
                                       Clock::now().time_since_epoch().count());
  auto own = ShmSegment::create(path, kSlots, slot_bytes);
  const auto paths = agree("made", path);
  Segments segments;
  for (int r = 0; r < world.size; ++r) {
    segments.push_back(r == world.rank ? std::move(own)
                                       : ShmSegment::open(paths[static_cast<size_t>(r)], kSlots, slot_bytes));
  }
  const bool all_there = std::all_of(segments.begin(), segments.end(), [](const auto& s) { return s != nullptr; });
  const auto mapped = agree("mapped", all_there ? "yes" : "no");
  if (auto& mine_again = segments[static_cast<size_t>(world.rank)]) mine_again->unlink();
  if (std::find(mapped.begin(), mapped.end(), "no") != mapped.end()) return nullptr;
  return std::make_unique<ShmBackend>(world.rank, std::move(segments), slot_bytes, options.patience);
}

}  // namespace lockstep
