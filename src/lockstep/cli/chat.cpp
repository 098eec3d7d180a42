#include "lockstep/cli/chat.h"

#include <filesystem>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/answers.h"
#include "lockstep/comm/together.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

constexpr const char* kMark = "<image>";
constexpr const char* kHelp = "exit ends, /clear forgets what was said, <image>path shows a picture\n";

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

Chat::Chat(Session& session, const InferFlags& flags) : session_(session), flags_(flags) { begin(); }

void Chat::begin() {
  history_ = {.where = "the conversation"};
  if (!flags_.system.empty()) history_.messages.push_back({.role = "system", .content = flags_.system});
}

void Chat::add_question(const std::string& text) {
  std::vector<std::string> images;
  std::string content = take_image_paths(text, images);
  if (turn_ == 0) images.insert(images.end(), flags_.images.begin(), flags_.images.end());
  size_t marks = 0;
  for (size_t at = content.find(kMark); at != std::string::npos; at = content.find(kMark, at + 1)) ++marks;
  if (marks > images.size())
    throw data_error(fmt::format("the question has {} {} marks and {} paths", marks, kMark, images.size()),
                     "write <image>path.png");
  for (; marks < images.size(); ++marks) content.insert(0, fmt::format("{}\n", kMark));
  for (const auto& image : images) history_.images.push_back(absolute(image));
  history_.messages.push_back({.role = "user", .content = content});
}

std::string Chat::answer() {
  Generator generator(session_.model(), session_.executor(), session_.job().control(), session_.plan().gathers());
  GenerateOptions options = generate_options(session_, 1, flags_.max_new_tokens);
  options.sampling = flags_.sampling;
  options.sampling.seed += static_cast<uint64_t>(turn_++);
  StreamDecoder stream(session_.processor().tokenizer());
  if (flags_.stream) {
    options.on_token = [&](int64_t, int32_t token) { std::cout << stream.push(token) << std::flush; };
  }
  const auto prompt = [&](int64_t) { return session_.processor().prompt_features(history_, flags_.rows.process()); };
  const auto answers = generator.run(dealt_prompts(1, session_.job().control(), prompt), options);
  const std::string text = session_.processor().tokenizer().decode(answers.at(0).tokens, true);
  if (session_.job().reports()) std::cout << (flags_.stream ? stream.finish() : text) << std::endl;
  return text;
}

void Chat::ask_once(const std::string& question) {
  add_question(question);
  answer();
}

void Chat::converse() {
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  const bool reads = session_.job().reports();
  if (reads && terminal) std::cout << kHelp;
  while (true) {
    std::string line = "exit";
    if (reads) {
      if (terminal) std::cout << "> " << std::flush;
      if (!std::getline(std::cin, line)) line = "exit";
    }
    line = from_rank_0(session_.job().control(), line, "question");
    if (line == "exit" || line == "quit") return;
    if (line.empty()) continue;
    if (line == "/clear") {
      begin();
      continue;
    }
    const Sample before = history_;
    try {
      add_question(line);
      history_.messages.push_back({.role = "assistant", .content = answer()});
    } catch (const UserError& error) {  // a path that is not there: the conversation goes on
      history_ = before;
      if (reads) std::cout << error.what() << std::endl;
    } catch (const SharedError& error) {
      history_ = before;
      if (reads) std::cout << error.what() << std::endl;
    }
  }
}

}  // namespace lockstep
