#include "lockstep/cli/deepspeed_flags.h"

#include <map>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/flag_json.h"
#include "lockstep/plan/zero.h"

namespace lockstep {
namespace {

/// What counts where a flag is not given is its default; nullopt: it is worked out later.
std::map<std::string, std::optional<double>> numbers_of(const SftFlags& f) {
  const FineTuneOptions& given = f.given;
  const auto whole = [](int64_t value) { return std::optional(static_cast<double>(value)); };
  std::map<std::string, std::optional<double>> out = {
      {"--per_device_train_batch_size", given.batch.rows == kAutoBatch ? std::nullopt : whole(given.batch.rows)},
      {"--gradient_accumulation_steps", std::nullopt},
      {"--max_grad_norm", given.train.max_grad_norm},
      {"--learning_rate", f.learning_rate.value_or(f.tuner.options().adapts() ? 1e-4 : given.train.learning_rate)},
      {"--adam_beta1", given.adamw.beta1},
      {"--adam_beta2", given.adamw.beta2},
      {"--adam_epsilon", given.adamw.epsilon},
      {"--weight_decay", given.adamw.weight_decay},
      {"--warmup_steps", whole(given.train.warmup_steps)},
      {"--max_steps", whole(given.train.max_steps)}};
  if (given.gradient_accumulation_steps)
    out["--gradient_accumulation_steps"] = whole(*given.gradient_accumulation_steps);
  return out;
}

std::string difference(const SaidTwice& said, const std::optional<double>& own) {
  return own ? fmt::format("{} is {}, and {} {:g}", said.key, said.value, said.flag, *own)
             : fmt::format("{} is {}, and {} is not given", said.key, said.value, said.flag);
}

/// What the file leaves out and nobody gave. Returns those that change: "--adam_beta2 0.999".
std::vector<std::string> take_defaults(const DeepSpeedChoice& choice, SftFlags& f, CLI::App& app) {
  std::vector<std::string> taken;
  const auto numbers = numbers_of(f);
  for (const auto& said : choice.says) {
    CLI::Option* const option = app.get_option(said.flag);
    const bool given = option->count() > 0 && !f.run.given.unsaid.contains(said.flag);
    if (!said.by_default || given || numbers.at(said.flag) == std::stod(said.value)) continue;
    option->clear();
    option->add_result(said.value);
    option->run_callback();
    taken.push_back(said.flag + " " + said.value);
  }
  return taken;
}

/// What is otherwise than a person may think who knows the flags, or DeepSpeed.
void tell_the_rest(const DeepSpeedChoice& choice, const FineTuneOptions& given, const std::string& where,
                   std::vector<std::string>& notices) {
  const auto tell = [&](const std::string& what) { notices.push_back(where + ": " + what); };
  if (choice.decays_all && given.adamw.weight_decay != 0)
    tell("optimizer: weight decay is for biases and norms too, as where DeepSpeed makes it");
  if (!choice.says_clipping && given.train.max_grad_norm != 1) {
    tell(
        fmt::format("gradient_clipping is not there: --max_grad_norm {:g} counts, where DeepSpeed clips at 1 (before "
                    "0.19.3 not at all)",
                    given.train.max_grad_norm));
  }
  if (!choice.ignored.empty())
    tell("without effect, since there is one way here, or a flag: " + join(choice.ignored, ", "));
  if (!choice.unknown.empty()) tell("no keys of DeepSpeed, nothing is done about them: " + join(choice.unknown, ", "));
}

}  // namespace

std::vector<std::string> agree_with_deepspeed(SftFlags& f, CLI::App& app) {
  const std::string& flag = f.run.deepspeed;
  if (flag.empty()) return {"--deepspeed is not given: zero3, which holds the least on each rank"};
  const DeepSpeedChoice choice = DeepSpeedChoice::from_flag(flag);
  const std::string where = is_inline_object(flag) ? "--deepspeed" : "--deepspeed " + flag;
  std::vector<std::string> notices, differences;
  if (const auto taken = take_defaults(choice, f, app); !taken.empty()) {
    notices.push_back(fmt::format("{}: optimizer.params leaves out what no flag says: {}, as DeepSpeed has it there",
                                  where, join(taken, " ")));
  }
  const auto numbers = numbers_of(f);
  for (const auto& said : choice.says) {
    if (said.flag == "--torch_dtype") {
      if (f.run.torch_dtype.empty()) {
        f.run.torch_dtype = said.value;
        notices.push_back(fmt::format("{}: {} is --torch_dtype {}", where, said.key, said.value));
      } else if (dtype_from_flag(f.run.torch_dtype) != dtype_from_flag(said.value)) {
        differences.push_back(fmt::format("{} is true, and --torch_dtype {}", said.key, f.run.torch_dtype));
      }
      continue;
    }
    if (said.flag == "--lr_scheduler_type") {
      notices.push_back(fmt::format("{}: the rate follows {}, as DeepSpeed has it, not --lr_scheduler_type {}", where,
                                    said.value, f.lr_scheduler_type));
      f.lr_scheduler_type = said.value;
      continue;
    }
    if (said.flag == "--lr_scheduler_kwargs") {
      f.lr_scheduler_kwargs = said.value;
      continue;
    }
    const auto& own = numbers.at(said.flag);
    if (own != std::stod(said.value)) differences.push_back(difference(said, own));
  }
  f.given.rows_of_step = choice.rows_of_step;
  if (!differences.empty()) {
    throw usage_error(fmt::format("{} and the flags differ: {}", where, join(differences, "; ")),
                      "say the same in both, or \"auto\" in the file");
  }
  tell_the_rest(choice, f.given, where, notices);
  return notices;
}

}  // namespace lockstep
