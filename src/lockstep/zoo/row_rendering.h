// What a chat template reads of one row beside its messages: tools, and the row's own variables.
#pragma once

#include <memory>

#include "lockstep/base/json.h"
#include "lockstep/data/sample.h"
#include "lockstep/text/chat_template.h"

namespace lockstep {

class RowRendering {
 public:
  /// Throws UserError(kData) naming the row for a variable that the template does not read.
  RowRendering(const Sample& sample, const ChatTemplate& chat);
  ~RowRendering();
  /// With the row's; borrows this.
  RenderOptions options(RenderOptions given) const;

 private:
  std::unique_ptr<Json> tools_, variables_;
};

}  // namespace lockstep
