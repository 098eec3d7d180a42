#include "lockstep/tasks/conversation.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/agree.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

constexpr const char* kMark = "<image>";

std::string absolute(const std::string& path) {
  return path.starts_with("data:") ? path : std::filesystem::absolute(path).string();
}

std::string first_missing(const std::vector<std::string>& images) {
  std::error_code unknown;
  for (const auto& image : images) {
    if (!image.starts_with("data:") && !std::filesystem::is_regular_file(image, unknown)) return image;
  }
  return {};
}

}  // namespace

std::string take_image_paths(const std::string& line, std::vector<std::string>& images) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t mark = line.find(kMark, at);
    if (mark == std::string::npos) return out + line.substr(at);
    size_t path = mark + std::string(kMark).size();
    out += line.substr(at, path - at);
    const bool quoted = path < line.size() && line[path] == '"' && line.find('"', path + 1) != std::string::npos;
    if (quoted) ++path;
    const size_t end = std::min(quoted ? line.find('"', path) : line.find_first_of(" \t", path), line.size());
    if (end > path) images.push_back(line.substr(path, end - path));
    at = end + (quoted ? 1 : 0);
    if (end > path && at < line.size() && line[at] == ' ') ++at;  // it ended the path, and is not of the question
  }
}

Message place_images(const std::string& text, std::vector<std::string>& images) {
  const bool given = !images.empty();  // then marks are their places, and what stands behind them is the question
  Message asked{.role = "user", .content = given ? text : take_image_paths(text, images)};
  std::string& content = asked.content;
  size_t marks = 0;
  for (size_t at = content.find(kMark); at != std::string::npos; at = content.find(kMark, at + 1)) ++marks;
  if (marks == 0) {
    for (size_t i = 0; i < images.size(); ++i) content.insert(0, kMark);
    asked.media_in_front = images.size();
  } else if (marks == images.size()) {
    const std::string_view text_view = content, mark = kMark;
    for (size_t at = 0; !given && text_view.substr(at).starts_with(mark); at += mark.size()) ++asked.media_in_front;
  } else {
    throw data_error(
        fmt::format("the question has {} {} mark{} and {} picture{}", marks, kMark, marks == 1 ? "" : "s",
                    images.size(), images.size() == 1 ? "" : "s"),
        given ? "one mark for each --image, or none: then the pictures stand in front" : "write <image>path.png");
  }
  return asked;
}

Message as_said(std::string text) {
  for (const Modality kind : kMediaKinds) {
    const std::string_view mark = media_mark(kind);
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) text.insert(at + 1, " ");
  }
  return {.role = "assistant", .content = std::move(text)};
}

Conversation::Conversation(Session& session, ConversationOptions options)
    : session_(session),
      options_(std::move(options)),
      generator_(session.model(), session.executor(), session.job().control(), session.plan().gathers()) {
  clear();
}

void Conversation::clear() {
  history_ = {.where = "the conversation"};
  if (!options_.system.empty()) history_.messages.push_back({.role = "system", .content = options_.system});
}

void Conversation::add_question(const std::string& text, std::vector<std::string> images) {
  const bool given = !images.empty();
  Message asked = place_images(text, images);
  Job& job = session_.job();
  // A slip that the conversation outlives: all ranks throw it alike, and none of them has failed.
  const std::string missing = from_rank_0(job.control(), job.reports() ? first_missing(images) : "", "picture missing");
  if (!missing.empty()) {
    throw data_error(
        given
            ? fmt::format("--image {}: no such file", missing)
            : fmt::format("{}{}: expected the path of a picture behind {}, found no such file", kMark, missing, kMark),
        given
            ? ""
            : "write <image>path.png What is it?, with quotes around a path that has blanks, or --prompt with --image "
              "path.png: then <image> is its place");
  }
  for (const auto& image : images) history_.images.push_back(absolute(image));
  history_.messages.push_back(std::move(asked));
}

Reply Conversation::answer() {
  Communicator& control = session_.job().control();
  GenerateOptions options =
      generate_options(session_, 1, options_.max_new_tokens, options_.process.max_length, options_.sampling);
  options.sampling.seed +=
      static_cast<uint64_t>(turn_++) * 0x9E3779B97F4A7C15ULL;  // far from the seed that one tries next
  options.reuse = PromptReuse::kAny;  // of the one slot: what was said before is not read again
  StreamDecoder stream(session_.processor().tokenizer(), options.sampling.skip_special_tokens);
  if (on_text) options.on_token = [&](int64_t, int32_t token) { on_text(stream.push(token)); };
  const auto prompt = [&](int64_t) { return session_.processor().prompt_features(history_, options_.process); };
  const auto answers = generator_.run_all(dealt_prompts(1, control, prompt), options);
  if (on_text && session_.job().reports()) on_text(stream.finish());
  const Generated& made = answers.at(0);
  return {.text = session_.processor().tokenizer().decode(made.tokens, options.sampling.skip_special_tokens),
          .cut = !made.stopped};
}

Reply Conversation::ask(const std::string& question, const std::vector<std::string>& images) {
  const Sample before = history_;
  try {
    add_question(question, images);
    Reply reply = answer();
    history_.messages.push_back(as_said(reply.text));
    return reply;
  } catch (const std::exception&) {
    history_ = before;
    throw;
  }
}

}  // namespace lockstep
