#include "lockstep/data/features.h"

#include "lockstep/base/error.h"

namespace lockstep {

int64_t count_places(const std::vector<MediaBlock>& media) {
  int64_t count = 0;
  for (const MediaBlock& block : media) count += static_cast<int64_t>(block.places.size());
  return count;
}

std::vector<int> filled_by(const std::vector<MediaBlock>& media, size_t tokens) {
  std::vector<int> owner(tokens, -1);
  for (size_t b = 0; b < media.size(); ++b) {
    for (const int32_t place : media[b].places) {
      check(place >= 0 && static_cast<size_t>(place) < tokens, "a placeholder of media stands among the row's tokens");
      int& at = owner[static_cast<size_t>(place)];
      check(at < 0, "one medium fills a place");
      at = static_cast<int>(b);
    }
  }
  return owner;
}

}  // namespace lockstep
