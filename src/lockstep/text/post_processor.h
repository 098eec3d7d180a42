// The `post_processor` of a tokenizer.json for single texts: which special tokens stand around the ids.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

class PostProcessor {
 public:
  /// `config` may be null. Supported: TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence.
  /// Throws UserError(kCheckpoint) naming `where` and the type.
  PostProcessor(const Json& config, const std::string& where);

  const TextFrame& frame() const { return frame_; }
  /// The largest of the frame; -1: none.
  int32_t max_id() const;

 private:
  void read(const Json& config, const std::string& where);
  void read_template(const Json& config, const std::string& where);

  /// Outermost last. A template that repeats or drops the text is refused while reading.
  TextFrame frame_;
};

}  // namespace lockstep
