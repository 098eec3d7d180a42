// The bytes of a picture, a sound or a film that a row names: of a file, or of a data: URI inside the row.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// A medium as read, and what messages call it: "rows.jsonl:3: audio a.wav".
struct MediaBytes {
  std::string bytes, name;
};

/// `kind`: "image", "audio" or "video". Throws UserError(kData) naming `reference` and `where` (the row) for what is no file, cannot
/// be read, or is larger than `most` bytes.
MediaBytes media_bytes(const std::string& reference, const std::string& kind, const std::string& where, size_t most);

/// What messages call a medium that is a file. Throws UserError(kData), as media_bytes, for what is none.
std::string check_media_file(const std::string& path, const std::string& kind, const std::string& where);

}  // namespace lockstep
