// The turns of one row, whatever their spelling: roles and contents, tool calls, what is trained and how much it counts.
// Used by sample_from_row alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/row_media.h"
#include "lockstep/data/sample.h"

namespace lockstep {

/// Names of a question and of an answer in a turn that is a pair: {"human": ..., "assistant": ...}.
bool is_turn_key(const std::string& key);
/// {"role": "user", "content": ..., "loss": true}: only answers are learnt by turns.
bool asks_to_learn_a_question(const Json& turn, const std::string& key, const Json& value);

class TurnReader {
 public:
  /// Borrows all of them.
  TurnReader(const std::string& where, RowMedia& media, std::vector<Message>& messages);
  ~TurnReader();

  /// A list of turns under `name`. Throws UserError(kData).
  void read(const Json& turns, const std::string& name);
  /// Whether the turns bring a system message of their own. Throws UserError(kData) for what is no list of turns.
  bool begins_with_system(const Json& turns, const std::string& name) const;

 private:
  std::string role_of(const Json& turn, const std::string& field) const;
  void read_turn(const Json& turn, const std::string& field);
  void read_pair(const Json& turn, const std::string& field);
  void read_assistant(const Json& turn, const std::string& field);
  void read_tool(const Json& turn, const std::string& field);
  void read_blocks(const Json& turn, const Json& parts, const std::string& role, const std::string& field);
  void add_calls(Json calls, const Json& turn, const std::string& field);
  void end_calls();
  void read_loss(const Json& turn, const std::string& field);
  Message tool_message(const Json& content, const std::string& field);
  void keep_fields(const Json& turn, Json extra);
  const Json* content_of(const Json& turn, std::string& field) const;

  const std::string& where_;
  RowMedia& media_;
  std::vector<Message>& messages_;
  std::unique_ptr<Json> joined_;  // fields of the message before `joined_end_`, which calls are added to
  size_t joined_end_ = 0;
};

}  // namespace lockstep
