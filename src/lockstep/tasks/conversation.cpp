#include "lockstep/tasks/conversation.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

constexpr const char* kMark = "<image>";

std::string absolute(const std::string& path) {
  return path.starts_with("data:") ? path : std::filesystem::absolute(path).string();
}

}  // namespace

std::string take_image_paths(const std::string& line, std::vector<std::string>& images) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t mark = line.find(kMark, at);
    if (mark == std::string::npos) return out + line.substr(at);
    const size_t path = mark + std::string(kMark).size();
    const size_t end = std::min(line.find_first_of(" \t", path), line.size());
    out += line.substr(at, path - at);
    if (end > path) images.push_back(line.substr(path, end - path));
    at = end;
  }
}

Conversation::Conversation(Session& session, ConversationOptions options)
    : session_(session), options_(std::move(options)) {
  clear();
}

void Conversation::clear() {
  history_ = {.where = "the conversation"};
  if (!options_.system.empty()) history_.messages.push_back({.role = "system", .content = options_.system});
}

void Conversation::add_question(const std::string& text, std::vector<std::string> images) {
  std::vector<std::string> named;
  std::string content = take_image_paths(text, named);
  images.insert(images.begin(), named.begin(), named.end());
  size_t marks = 0;
  for (size_t at = content.find(kMark); at != std::string::npos; at = content.find(kMark, at + 1)) ++marks;
  if (marks > images.size())
    throw data_error(fmt::format("the question has {} {} marks and {} paths", marks, kMark, images.size()),
                     "write <image>path.png");
  for (; marks < images.size(); ++marks) content.insert(0, fmt::format("{}\n", kMark));
  for (const auto& image : images) history_.images.push_back(absolute(image));
  history_.messages.push_back({.role = "user", .content = content});
}

std::string Conversation::answer() {
  Communicator& control = session_.job().control();
  Generator generator(session_.model(), session_.executor(), control, session_.plan().gathers());
  GenerateOptions options = generate_options(session_, 1, options_.max_new_tokens);
  options.sampling = options_.sampling;
  options.sampling.seed += static_cast<uint64_t>(turn_++);
  StreamDecoder stream(session_.processor().tokenizer());
  if (on_text) options.on_token = [&](int64_t, int32_t token) { on_text(stream.push(token)); };
  const auto prompt = [&](int64_t) { return session_.processor().prompt_features(history_, options_.process); };
  const auto answers = generator.run(dealt_prompts(1, control, prompt), options);
  if (on_text && session_.job().reports()) on_text(stream.finish());
  return session_.processor().tokenizer().decode(answers.at(0).tokens, true);
}

std::string Conversation::ask(const std::string& question, const std::vector<std::string>& images) {
  const Sample before = history_;
  try {
    add_question(question, images);
    std::string text = answer();
    history_.messages.push_back({.role = "assistant", .content = text});
    return text;
  } catch (const std::exception&) {
    history_ = before;
    throw;
  }
}

}  // namespace lockstep
