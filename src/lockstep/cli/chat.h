// A conversation in the terminal, streamed; or one question.
#pragma once

#include <string>

#include "lockstep/cli/infer_flags.h"
#include "lockstep/cli/session.h"
#include "lockstep/data/sample.h"

namespace lockstep {

class Chat {
 public:
  /// Rank 0 reads and prints; the others lend their shards.
  Chat(Session& session, const InferFlags& flags);

  /// Until end of input, or "exit". Collective.
  void converse();
  /// One question with the pictures of the flags. Collective.
  void ask_once(const std::string& question);

 private:
  void begin();
  void add_question(const std::string& text);
  std::string answer();

  Session& session_;
  const InferFlags& flags_;
  Sample history_;
  int64_t turn_ = 0;  // so that a repeated question is sampled anew
};

/// Takes "<image>path" marks (the path ends at white space) out of a line: the marks stay, the paths go to `images`.
std::string take_image_paths(const std::string& line, std::vector<std::string>& images);

}  // namespace lockstep
