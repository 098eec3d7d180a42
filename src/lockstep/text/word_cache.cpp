#include "lockstep/text/word_cache.h"

namespace lockstep {

WordCache::Shard& WordCache::shard_of(std::string_view word) const { return shards_[(Hash()(word) >> 20) % kShards]; }

bool WordCache::find(std::string_view word, std::vector<int32_t>& out) const {
  Shard& shard = shard_of(word);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.words.find(word);
  if (found == shard.words.end()) return false;
  out.insert(out.end(), found->second.begin(), found->second.end());
  return true;
}

void WordCache::put(std::string_view word, const std::vector<int32_t>& ids) {
  Shard& shard = shard_of(word);
  const std::lock_guard lock(shard.mutex);
  if (shard.words.size() < kWordsPerShard) shard.words.emplace(word, ids);
}

}  // namespace lockstep
