#include "lockstep/cli/infer_flags.h"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/batch_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/sampling_flags.h"
#include "lockstep/cli/verbs.h"

namespace lockstep {

namespace {

void add_generation_flags(CLI::App& app, InferFlags& f) {
  const char* group = "Generation";
  app.add_option("--max_new_tokens", f.given.max_new_tokens, "")
      ->check(whole_number(1, kMostNewTokens))
      ->capture_default_str()
      ->group(group);
  add_sampling_flags(app, group, f.given.sampling);
  add_batch_flags(app, "--max_batch_size,--batch_size", "rows that one rank answers side by side", group,
                  f.given.batch);
}

void add_speech_flags(CLI::App& app, InferFlags& f) {
  const char* group = "Speech";
  app.add_flag("--speech", f.speech, "say the answers of a file too: codes of the model's talker")->group(group);
  app.add_option("--speaker", f.voice.speaker, "whose voice: a name in spk_dict.pt (default: Chelsie)")->group(group);
  app.add_option("--talker_max_new_tokens", f.voice.how.max_codes, "codes of an answer at most")
      ->check(whole_number(1, kMostNewTokens))
      ->capture_default_str()
      ->group(group);
  app.add_option("--talker_temperature", f.voice.how.sampling.temperature, "0: greedy")
      ->check(real_number({.least = 0}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_answering_flags(CLI::App& app, InferFlags& f) {
  add_row_flags(app, f.rows);
  add_generation_flags(app, f);
  add_speech_flags(app, f);
}

std::optional<InferFlags> parse_infer_flags(const std::vector<std::string>& args) {
  InferFlags f;
  CLI::App app(infer_summary, "lockstep infer");
  app.footer(
      "Examples:\n  lockstep infer --model my-model                                    chat; <image>path.png in a line "
      "shows a picture\n"
      "  lockstep infer --model my-model --prompt 'What is this?' --image a.png  one answer\n"
      "  lockstep infer --model my-model --val_dataset rows.jsonl --result_path answers.jsonl --nproc 2");
  add_run_flags(app, f.run);
  app.add_option("--merge_lora", f.given.run.merge_adapter, "put the adapter into the weights while they are loaded")
      ->group("Model");
  app.add_option("--val_dataset,--input,--dataset", f.given.input, std::string("rows to answer: ") + kRowFiles)
      ->group("Prompts");
  app.add_option("--result_path,--output", f.given.output,
                 "answers, JSONL, in the order of the rows (default: a file of this time in infer_result/ of a "
                 "checkpoint of `sft`, else in result/NAME/infer_result/)")
      ->group("Prompts");
  app.add_option("--overwrite", f.given.overwrite, "begin anew where an earlier run of other flags was cut short")
      ->capture_default_str()
      ->group("Prompts");
  app.add_option("--prompt", f.prompt, "one question instead of a chat")->group("Prompts");
  app.add_option("--image,--images", f.images, "pictures for the first question")->group("Prompts");
  add_answering_flags(app, f);
  app.add_option("--stream", f.stream, "show an answer while it grows")->capture_default_str()->group("Generation");
  const UsualFlags usual = {"model",          "prompt",      "image",          "system", "val_dataset", "result_path",
                            "max_new_tokens", "temperature", "max_batch_size", "nproc",  "deepspeed",   "torch_dtype"};
  OtherStacks others{.verb = "infer", .notices = {}};
  if (!parse_flags(app, args, usual, &others)) return std::nullopt;
  f.notices = std::move(others.notices);
  f.run.given.unsaid = std::move(others.unsaid);
  if (app.count("--prompt") > 0 && f.prompt.empty()) {
    throw usage_error("--prompt: expected a question, found nothing", "leave the flag out for a chat");
  }
  if (std::ranges::find(f.images, "") != f.images.end()) throw usage_error("--image: expected a file, found nothing");
  if (!f.given.input.empty() && !(f.prompt.empty() && f.images.empty())) {
    throw usage_error("--prompt and --image ask one question, and --val_dataset those of a file",
                      "leave one of them out");
  }
  if (f.given.input.empty() && !f.given.output.empty()) {
    throw usage_error("--result_path: expected rows to answer, found a chat", "--val_dataset FILE");
  }
  if (f.speech && f.given.input.empty()) {
    throw usage_error("--speech: expected a file of prompts, found a chat",
                      "--val_dataset rows.jsonl --result_path out.jsonl");
  }
  (void)f.options(Env());
  return f;
}

AnswerFileOptions InferFlags::options(const Env& env) const {
  AnswerFileOptions out = answering(env);
  out.run = run.options(run.with_variables(env));
  out.run.merge_adapter = given.run.merge_adapter;
  return out;
}

AnswerFileOptions InferFlags::answering(const Env& env) const {
  AnswerFileOptions out = given;
  out.rows = rows.options(run.with_variables(env));
  out.sampling.seed = out.rows.seed;
  if (!speech) {
    const SpeakChoice usual;
    if (voice.speaker != usual.speaker || voice.how.max_codes != usual.how.max_codes ||
        voice.how.sampling.temperature != usual.how.sampling.temperature) {
      throw usage_error("--speaker and --talker_… are of answers that are said, and none are asked for", "--speech");
    }
    return out;
  }
  out.speech = voice;
  out.speech->how.sampling.seed = out.rows.seed + 1;  // else codes would be drawn as the tokens were
  return out;
}

}  // namespace lockstep
