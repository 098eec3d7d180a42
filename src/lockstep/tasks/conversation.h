// A conversation with a model: questions with pictures, each answered after all that was said before.
//
// Example:
//   Conversation talk(session, {.max_new_tokens = 64}, processing);
//   talk.on_text = [](const std::string& text) { std::cout << text << std::flush; };
//   const std::string answer = talk.ask("<image>cat.png What is this?").text;
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/sample.h"
#include "lockstep/infer/generator.h"
#include "lockstep/session/session.h"

namespace lockstep {

struct ConversationOptions {
  std::string system;  // message before the first question; empty: none
  int64_t max_new_tokens = 256;
  SamplingOptions sampling;
  ProcessOptions process;
};

/// An answer, and whether the limit of tokens or the model's positions cut it.
struct Reply {
  std::string text;
  bool cut = false;
};

class Conversation {
 public:
  /// Borrows `session`, which is loaded.
  Conversation(Session& session, ConversationOptions options);

  /// The answer as it grows, on the reporting rank; empty: nobody wants it.
  std::function<void(const std::string& text)> on_text{};

  /// "<image>path" in a question shows a picture; with `images`, "<image>" alone is the place of each, and without such
  /// marks they stand in front. What fails leaves the conversation as it was before. Throws UserError, SharedError.
  /// Collective.
  Reply ask(const std::string& question, const std::vector<std::string>& images = {});

  /// Forgets what was said.
  void clear();

 private:
  void add_question(const std::string& text, std::vector<std::string> images);
  Reply answer();

  Session& session_;
  ConversationOptions options_;
  Generator generator_;  // of all turns: it remembers pictures that it has seen
  Sample history_;
  int64_t turn_ = 0;  // so that a repeated question is sampled anew
};

/// Takes "<image>path" marks out of a line: the marks stay, the paths go to `images`. A path ends at white space, or
/// stands in quotes.
std::string take_image_paths(const std::string& line, std::vector<std::string>& images);

/// A question as a row of a data set would have it: a mark for each picture. A path behind a mark makes it a picture in
/// front, not one that the text marks. Throws UserError(kData): marks and pictures that do not match in number.
Message place_images(const std::string& text, std::vector<std::string>& images);

/// An answer as a message of the conversation: a mark of media in it stands for none, and is parted so that nothing reads it as one.
Message as_said(std::string text);

}  // namespace lockstep
