#include "lockstep/infer/media_memory.h"

#include <algorithm>
#include <set>
#include <span>

#include <ATen/core/Tensor.h>
#include <xxhash.h>

namespace lockstep {
namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }

  /// With its length, so that neighbours do not run together.
  template <typename T>
  void add(std::span<const T> values) {
    const uint64_t count = values.size();
    XXH3_128bits_update(state_.get(), &count, sizeof count);
    XXH3_128bits_update(state_.get(), values.data(), values.size_bytes());
  }
  void add(std::string_view text) { add(std::span<const char>(text)); }
  void add(int64_t value) { add(std::span<const int64_t>(&value, 1)); }
  MediaKey key() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

int64_t bytes_of(const MediaOutputs& outputs) {
  std::set<const void*> seen;  // several steps may read one tensor
  int64_t bytes = 0;
  for (const auto& [step, flow] : outputs) {
    for (const auto& [slot, value] : flow.entries()) {
      const auto& storage = value.storage();
      if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<int64_t>(storage.nbytes());
    }
  }
  return bytes;
}

}  // namespace

std::optional<MediaKey> media_key(const Features& row, std::optional<size_t> adapter) {
  if (row.media.empty()) return std::nullopt;
  Hash hash;
  hash.add(adapter ? static_cast<int64_t>(*adapter) : int64_t{-1});
  for (const auto& block : row.media) {
    hash.add(static_cast<int64_t>(block.modality));
    hash.add(std::string_view(block.slot));
    hash.add(std::span<const int64_t>(block.shape));
    hash.add(std::span<const float>(block.values));
    for (const auto& [name, values] : block.facts) {
      hash.add(std::string_view(name));
      hash.add(std::span<const int64_t>(values));
    }
  }
  return hash.key();
}

std::vector<std::string> media_slots(const Features& row) {
  std::set<std::string> slots;
  for (const auto& block : row.media) {
    slots.insert(values_slot(block.slot));
    for (const auto& [name, values] : block.facts) slots.insert(name);
  }
  return {slots.begin(), slots.end()};
}

std::shared_ptr<const MediaOutputs> MediaMemory::find(const MediaKey& key) {
  const auto found = std::ranges::find(held_, key, &Held::key);
  if (found == held_.end()) return nullptr;
  held_.splice(held_.begin(), held_, found);
  return found->outputs;
}

void MediaMemory::keep(const MediaKey& key, std::shared_ptr<const MediaOutputs> outputs) {
  if (outputs == nullptr || find(key) != nullptr) return;
  const int64_t bytes = bytes_of(*outputs);
  if (bytes > limit_) return;
  bytes_ += bytes;
  held_.push_front({key, std::move(outputs), bytes});
  for (; bytes_ > limit_; held_.pop_back()) bytes_ -= held_.back().bytes;
}

}  // namespace lockstep
