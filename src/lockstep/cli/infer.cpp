// lockstep infer: a conversation in the terminal, one question, or answers to a file of prompts.
#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/infer_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/comm/agree.h"
#include "lockstep/tasks/conversation.h"
#include "lockstep/tasks/predictions.h"
#include "lockstep/tasks/unheeded.h"

namespace lockstep {
namespace {

constexpr const char* kHelp =
    "exit ends, /clear forgets what was said, /help shows this, <image>path.png What is it? shows a picture\n";

/// "/clear", and not "/usr/bin is what?".
bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         std::all_of(line.begin() + 1, line.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

void print(const Answered& done, const std::string& output, int64_t max_new_tokens) {
  const double rate = static_cast<double>(done.tokens) / std::max(done.seconds, 1e-6);
  std::cout << fmt::format("{} answers, {} tokens in {:.1f} s{} -> {}\n", done.answered, done.tokens, done.seconds,
                           done.from_nothing ? fmt::format(" ({:.1f} tokens/s)", rate) : "", output);
  if (done.cut > 0) {
    std::cout << fmt::format("notice: {} (\"finish_reason\": \"length\")\n",
                             cut_words(done.cut, done.answered, max_new_tokens));
  }
  if (done.failed == 0) return;
  std::cout << fmt::format(
      "notice: {} rows could not be used and have an \"error\" (--strict true stops at the first): {}\n", done.failed,
      shown_text(done.first_failure));
}

/// Rank 0 reads and prints; the others lend their shards.
class Terminal {
 public:
  /// `prints`: answers are for people, and not for a program that is told the result.
  Terminal(Session& session, const InferFlags& flags, const AnswerFileOptions& options, const EventBus& events,
           bool prints)
      : job_(session.job()),
        events_(events),
        max_new_tokens_(options.max_new_tokens),
        prints_(prints),
        streams_(prints && flags.stream),
        images_(flags.images),
        talk_(session, {.system = flags.rows.given.system,
                        .max_new_tokens = options.max_new_tokens,
                        .sampling = options.sampling,
                        .process = options.rows.process()}) {
    if (streams_) talk_.on_text = [this](const std::string& text) { std::cout << shown(text) << std::flush; };
  }

  /// The pictures of the flags come with the first question.
  Reply ask(const std::string& question) {
    Reply reply = talk_.ask(question, images_);
    images_.clear();
    if (job_.reports() && prints_) std::cout << (streams_ ? "" : shown(reply.text)) << std::endl;
    if (reply.cut) {
      events_.emit(
          Notice{fmt::format("the answer did not come to its end: --max_new_tokens {} cut it, or the model's positions",
                             max_new_tokens_)});
    }
    return reply;
  }

  /// Until end of input, or "exit".
  void converse() {
    const bool terminal = ::isatty(STDIN_FILENO) != 0;
    if (job_.reports() && terminal) std::cout << kHelp;
    for (std::string line = question(terminal); !is_end(line); line = question(terminal)) {
      if (line.empty()) continue;
      if (is_command(line)) {
        obey(line);
        continue;
      }
      try {
        (void)ask(line);
      } catch (const UserError& error) {  // a path that is not there: the conversation goes on
        tell(error);
      } catch (const SharedError& error) {
        tell(error);
      }
    }
  }

 private:
  /// A program that reads gets an answer as it is.
  static std::string shown(const std::string& text) { return ::isatty(STDOUT_FILENO) != 0 ? shown_text(text) : text; }

  /// What another question would meet too ends it.
  void tell(const Error& error) const {
    if (error.code() == ExitCode::kNumerics) throw;
    if (job_.reports()) std::cout << shown_text(error.what()) << std::endl;
  }

  static bool is_end(const std::string& line) {
    return line == "exit" || line == "quit" || line == "/exit" || line == "/quit";
  }

  void obey(const std::string& command) {
    if (command == "/clear") return talk_.clear();
    if (!job_.reports()) return;
    if (command != "/help") {
      const std::string near = nearest_name(command, {"/clear", "/help", "/exit", "/quit"});
      std::cout << fmt::format("there is no command {}{}\n", command,
                               near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    std::cout << kHelp << std::flush;
  }

  std::string question(bool terminal) {
    std::string line = "exit";
    if (job_.reports()) {
      if (terminal) std::cout << "> " << std::flush;
      if (!std::getline(std::cin, line)) line = "exit";
      if (line.ends_with('\r')) line.pop_back();  // of a file that Windows wrote
    }
    return from_rank_0(job_.control(), line, "question");
  }

  Job& job_;
  const EventBus& events_;
  int64_t max_new_tokens_;
  bool prints_, streams_;
  std::vector<std::string> images_;
  Conversation talk_;
};

/// Where ms-swift writes: beside the checkpoint that it made, else by the model's name.
std::string usual_result(const RunOptions& run) {
  namespace fs = std::filesystem;
  const fs::path folder = run.adapters.empty() ? run.model : run.adapters.front().dir;
  const bool own = !run.adapters.empty() || fs::exists(folder / "args.json");
  const std::string name = (fs::absolute(folder) / "").lexically_normal().parent_path().filename().string();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S.jsonl", &local);
  return ((own ? folder : fs::path("result") / name) / "infer_result" / text.data()).string();
}

void talk(Job& job, const InferFlags& flags, const AnswerFileOptions& options, const Host& host,
          const Console& console) {
  Session session(job, options.run);
  for (const auto& words : unheeded_in_talk(options, session.model())) console.events().emit(Notice{words});
  if (const auto& folder = flags.rows.media_dir; !folder.empty()) {
    console.events().emit(Notice{fmt::format("--media_dir {} has no effect: pictures are where --image says", folder)});
  }
  session.decide(session.inference());
  session.load();
  Terminal terminal(session, flags, options, console.events(), !host.lines || flags.prompt.empty());
  if (flags.prompt.empty()) {
    terminal.converse();
  } else {
    const Reply reply = terminal.ask(flags.prompt);
    Json result = {{"response", reply.text}};
    if (reply.cut) result["finish_reason"] = "length";
    (void)tell_result(host, job, result);
  }
}

}  // namespace

const char* const infer_summary = "chat with a model, or answer a file of prompts";

int run_infer(const Words& args, const Host& host) {
  const auto flags = parse_infer_flags(args);
  if (!flags) return 0;
  AnswerFileOptions options = flags->options(host.env);
  if (const auto code = launch_verb("infer", args, options.run, host)) return *code;
  Job job = start_verb("infer", options.run, host);
  Console console(std::cerr, job, host);
  console.tell(flags->notices);
  if (options.input.empty()) {
    talk(job, *flags, options, host, console);
  } else {
    if (options.output.empty()) {
      options.output_is_usual = true;
      options.output = from_rank_0(job.control(), usual_result(options.run), "result path");
    }
    const Answered done = answer_file(job, options, console.events());
    const bool told = tell_result(host, job,
                                  {{"output", done.output.string()},
                                   {"answered", done.answered},
                                   {"cut", done.cut},
                                   {"failed", done.failed},
                                   {"first_failure", done.first_failure},
                                   {"tokens", done.tokens},
                                   {"seconds", done.seconds}});
    if (told) return 0;
    if (job.reports()) print(done, done.output.string(), options.max_new_tokens);
  }
  print_communication(job, options.run, std::cerr);  // answers alone stand on stdout
  return 0;
}

}  // namespace lockstep
