// Words that were tokenized before. Sharded, so that threads seldom wait for each other; a full shard takes no more.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

class WordCache {
 public:
  /// Appends the ids of `word` to `out`, if they are known.
  bool find(std::string_view word, std::vector<int32_t>& out) const;
  void put(std::string_view word, const std::vector<int32_t>& ids);

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kWordsPerShard = 4096;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Shard {
    std::mutex mutex;  // guards words
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words;
  };
  Shard& shard_of(std::string_view word) const;

  mutable std::array<Shard, kShards> shards_;
};

}  // namespace lockstep
