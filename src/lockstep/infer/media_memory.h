// Remembers what towers have made of the media of rows, so that several questions about one picture, or the turns of a
// conversation about it, look at it once. The bits are the same: a prompt's media run alone either way.
//
// Example:
//   MediaMemory memory;
//   const auto key = media_key(row, adapter);             // nullopt: it has no media
//   part.media = memory.find(*key);                       // null: the towers run
//   …                                                     // the pass
//   memory.keep(*key, part.media);
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/exec/media_trace.h"

namespace lockstep {

/// Of the contents of all media of a row, and the adapter that it is answered with: 128 bits, so that no two meet.
using MediaKey = std::pair<uint64_t, uint64_t>;
std::optional<MediaKey> media_key(const Features& row, std::optional<size_t> adapter);

/// The slots of a batch of this row alone that follow from its media alone.
std::vector<std::string> media_slots(const Features& row);

class MediaMemory {
 public:
  /// At most so much is kept: of those that were not asked for longest, the first to go. More than that is not kept at all.
  explicit MediaMemory(int64_t bytes = int64_t{64} << 20) : limit_(bytes) {}

  std::shared_ptr<const MediaOutputs> find(const MediaKey& key);
  void keep(const MediaKey& key, std::shared_ptr<const MediaOutputs> outputs);

 private:
  struct Held {
    MediaKey key;
    std::shared_ptr<const MediaOutputs> outputs;
    int64_t bytes = 0;
  };
  int64_t limit_, bytes_ = 0;
  std::list<Held> held_;  // the last that was asked for stands first
};

}  // namespace lockstep
