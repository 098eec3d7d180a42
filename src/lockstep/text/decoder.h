// The `decoder` of a tokenizer.json: tokens back to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

/// The text that no later token can change; `complete` when that is all there is.
struct CertainText {
  std::string text;
  bool complete = true;
};

class Decoder {
 public:
  struct Step;
  /// `config` may be null (tokens joined with spaces). Supported: ByteLevel, ByteFallback, Fuse, Metaspace, Replace,
  /// Strip, Sequence. Throws UserError(kCheckpoint) naming `where` and the type.
  Decoder(const Json& config, const std::string& where);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// `at_start` false for tokens that follow others, so that a leading space stays.
  std::string decode(std::vector<std::string> tokens, bool at_start = true) const;
  /// Whether later tokens leave the text of earlier ones alone, but for runs of byte tokens and unfinished characters.
  bool is_local() const;
  /// As decode, for tokens that more may follow.
  CertainText decode_certain(std::vector<std::string> tokens, bool at_start) const;

 private:
  void read(const Json& config, const std::string& where);
  bool has_byte_fallback() const;

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace lockstep
