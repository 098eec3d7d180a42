#include "lockstep/cli/infer.h"

#include <filesystem>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/answers.h"
#include "lockstep/cli/chat.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/comm/together.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

const char* const infer_summary = "chat with a model, or answer a file of prompts";

namespace {

/// A list of frames, as the row may have had it.
Json video_json(const Video& video) {
  if (video.fps == 0) return video.frames;
  return {{"frames", video.frames}, {"fps", video.fps}};
}

/// A line of the answers' file, under ms-swift's names.
Json answer_row(const Sample& sample, const std::string& response) {
  Json messages = Json::array();
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  for (size_t i = 0; i + (answered ? 1 : 0) < sample.messages.size(); ++i) {
    messages.push_back({{"role", sample.messages[i].role}, {"content", sample.messages[i].content}});
  }
  messages.push_back({{"role", "assistant"}, {"content", response}});
  const std::string expected = expected_response(sample);
  Json row = {
      {"response", response}, {"labels", expected.empty() ? Json(nullptr) : Json(expected)}, {"messages", messages}};
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  return row;
}

void answer_file(Session& session, const InferFlags& flags, const Env& env) {
  Job& job = session.job();
  const auto begun = Clock::now();
  std::optional<Dataset> rows;
  together(job.control(), "opening the prompts", [&] {
    rows.emplace(
        std::vector<std::string>{flags.input},
        DatasetOptions{.strict = flags.rows.strict, .root_image_dir = env.text("ROOT_IMAGE_DIR").value_or("")});
  });
  agree_on(job.control(), {{"prompts", rows->fingerprint()}});
  std::vector<std::string> skipped;
  const auto prompt = [&](int64_t row) -> std::optional<Features> {
    try {
      return session.processor().prompt_features(rows->sample(row), flags.rows.process());
    } catch (const UserError& error) {
      if (flags.rows.strict || error.code() != ExitCode::kData) throw;
      skipped.emplace_back(error.what());
      return std::nullopt;
    }
  };
  GenerateOptions options = generate_options(session, flags.batch_size, flags.max_new_tokens);
  options.sampling = flags.sampling;
  Generator generator(session.model(), session.executor(), job.control(), session.plan().gathers());
  const auto answers =
      job.control().recorder().confessing([&] { return generator.run(rows->size(), prompt, options); });
  const auto reasons = job.control().all_gather_bytes(skipped.empty() ? "" : skipped.front(), "skipped prompts");
  together(job.control(), "writing answers", [&] {
    if (!job.reports()) return;
    std::ostringstream text;
    for (const auto& answer : answers) {
      const std::string response = session.processor().tokenizer().decode(answer.tokens, true);
      text << answer_row(rows->sample(answer.row), response).dump(-1, ' ', false, Json::error_handler_t::replace)
           << "\n";
    }
    write_text(flags.output, text.str());
  });
  if (!job.reports()) return;
  const auto left_out =
      rows->size() - static_cast<int64_t>(answers.size()) + static_cast<int64_t>(rows->broken().size());
  std::cout << fmt::format("{} answers in {:.1f} s -> {}\n", answers.size(), seconds_since(begun), flags.output);
  if (left_out == 0) return;
  std::string reason = rows->broken().empty() ? "" : rows->broken().front().where + ": " + rows->broken().front().why;
  for (const auto& other : reasons) reason = reason.empty() ? other : reason;
  std::cout << fmt::format(
      "notice: {} rows could not be used and were left out (--strict true stops at the first): {}\n", left_out, reason);
}

}  // namespace

int run_infer(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse_infer_flags(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("infer", args, flags->run, env)) return *code;
  Job job = start_job("infer", flags->run, env);
  Session session(job, flags->run.model, flags->run.dtype(), [&](Dtype compute) {
    return PlanOptions{.world = job.world.size, .zero = flags->run.zero(), .compute = compute, .training = false};
  });
  session.load();
  if (!flags->input.empty()) {
    answer_file(session, *flags, env);
  } else if (!flags->prompt.empty()) {
    Chat(session, *flags).ask_once(flags->prompt);
  } else {
    Chat(session, *flags).converse();
  }
  tell_communication(job, flags->run, std::cerr);  // answers alone stand on stdout
  return 0;
}

}  // namespace lockstep
