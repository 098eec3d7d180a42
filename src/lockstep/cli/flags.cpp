#include "lockstep/cli/flags.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

bool is_listed(const CLI::Option& option) { return !option.get_group().empty(); }  // "": taken, and in no list

std::vector<std::string> known_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    if (!is_listed(*option)) continue;
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What other trainers and tools call our flags, where no letters would lead to them.
struct OtherName {
  const char *theirs, *ours;
};
constexpr OtherName kOtherNames[] = {
    {"lr", "learning_rate"},
    {"epochs", "num_train_epochs"},
    {"epoch", "num_train_epochs"},
    {"num_epochs", "num_train_epochs"},
    {"n_epochs", "num_train_epochs"},
    {"steps", "max_steps"},
    {"num_steps", "max_steps"},
    {"max_iters", "max_steps"},
    {"resume", "resume_from_checkpoint"},
    {"resume_from", "resume_from_checkpoint"},
    {"output", "output_dir"},
    {"out", "output_dir"},
    {"out", "output"},
    {"out_dir", "output_dir"},
    {"save_dir", "output_dir"},
    {"output_dir", "output"},
    {"output_path", "output"},
    {"output_path", "result_path"},
    {"output_file", "result_path"},
    {"nproc_per_node", "nproc"},
    {"num_processes", "nproc"},
    {"num_gpus", "nproc"},
    {"gpus", "nproc"},
    {"np", "nproc"},
    {"world_size", "world"},
    {"cutoff_len", "max_length"},
    {"max_len", "max_length"},
    {"max_seq_len", "max_length"},
    {"max_seq_length", "max_length"},
    {"model_max_length", "max_length"},
    {"seq_len", "max_length"},
    {"batch_size", "per_device_train_batch_size"},
    {"bs", "batch_size"},
    {"train_batch_size", "per_device_train_batch_size"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"grad_accum", "gradient_accumulation_steps"},
    {"grad_accum_steps", "gradient_accumulation_steps"},
    {"accumulate_grad_batches", "gradient_accumulation_steps"},
    {"grad_checkpointing", "gradient_checkpointing"},
    {"activation_checkpointing", "gradient_checkpointing"},
    {"recompute", "gradient_checkpointing"},
    {"model_name_or_path", "model"},
    {"model_name", "model"},
    {"model_path", "model"},
    {"base_model", "model"},
    {"pretrained", "model"},
    {"checkpoint", "model"},
    {"ckpt", "model"},
    {"data", "dataset"},
    {"data_path", "dataset"},
    {"train_file", "dataset"},
    {"train_data", "dataset"},
    {"train_dataset", "dataset"},
    {"eval_dataset", "val_dataset"},
    {"eval_file", "val_dataset"},
    {"validation_file", "val_dataset"},
    {"test_file", "val_dataset"},
    {"val_size", "split_dataset_ratio"},
    {"precision", "torch_dtype"},
    {"mixed_precision", "torch_dtype"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"scheduler", "lr_scheduler_type"},
    {"warmup", "warmup_ratio"},
    {"wd", "weight_decay"},
    {"grad_clip", "max_grad_norm"},
    {"gradient_clipping", "max_grad_norm"},
    {"clip_grad_norm", "max_grad_norm"},
    {"zero_stage", "deepspeed"},
    {"zero", "deepspeed"},
    {"ds_config", "deepspeed"},
    {"log_interval", "logging_steps"},
    {"log_steps", "logging_steps"},
    {"save_interval", "save_steps"},
    {"save_every", "save_steps"},
    {"eval_interval", "eval_steps"},
    {"num_workers", "dataloader_num_workers"},
    {"workers", "dataloader_num_workers"},
    {"max_tokens", "max_new_tokens"},
    {"max_gen_len", "max_new_tokens"},
    {"num_predict", "max_new_tokens"},
    {"temp", "temperature"},
    {"question", "prompt"},
    {"query", "prompt"},
    {"text", "prompt"},
    {"img", "image"},
    {"picture", "image"},
    {"freeze_vision_tower", "freeze_vit"},
    {"freeze_multi_modal_projector", "freeze_aligner"},
    {"freeze_language_model", "freeze_llm"},
    {"transport_backend", "transport"},
    {"backend", "transport"},
    {"timeout", "patience"},
    {"force_overwrite", "overwrite"},
    {"size_name", "size"},
    {"model_type", "family"},
    {"vocab", "vocab_size"},
};

/// `name`, with its dashes, as one of the app's flags; "": none is near.
std::string meant_flag(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = known_flags(app);
  std::string word = CLI::detail::to_lower(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::ranges::replace(word, '-', '_');
  const auto is_known = [&](const std::string& flag) { return std::ranges::find(known, flag) != known.end(); };
  if (is_known("--" + word)) return "--" + word;
  for (const auto& other : kOtherNames) {
    if (word == other.theirs && is_known(std::string("--") + other.ours)) return std::string("--") + other.ours;
  }
  return nearest_name(name, known);
}

UserError unknown_flag(const CLI::App& app) {
  const auto rest = app.remaining();
  const auto flag =
      std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
  const std::string help = fmt::format("{} --help all lists all", app.get_name());
  if (flag == rest.end()) {
    return usage_error(fmt::format("\"{}\" is not expected here", rest.empty() ? "" : rest.front()), help);
  }
  const std::string name = flag->substr(0, flag->find('='));
  const std::string nearest = meant_flag(app, name);
  return usage_error(fmt::format("unknown flag {}", name),
                     nearest.empty() ? help : fmt::format("did you mean {}? {}", nearest, help));
}

/// A flag without its value, or one that stands twice.
UserError wrong_count(const CLI::App& app, const std::string& said) {
  const std::string name = said.substr(0, said.find_first_of(": "));
  const auto* option = app.get_option_no_throw(name);
  if (option != nullptr && said.find("At Most") != std::string::npos) {
    return usage_error(
        fmt::format("{} stands there {} times: {}", name, option->count(), join(option->results(), ", ")),
        "leave all but one out");
  }
  if (said.find("override") != std::string::npos) {
    return usage_error(fmt::format("{} takes no value", name), name);
  }
  return usage_error(fmt::format("{}: expected a value, found none", name), fmt::format("{} --help", app.get_name()));
}

/// CLI11's "--flag: npy not in {jsonl,safetensors}" as a sentence, with the nearest word.
UserError wrong_value(const CLI::App& app, const std::string& said) {
  constexpr std::string_view kNotIn = " not in {";
  const size_t flag = said.find(": "), at = said.find(kNotIn);
  const std::string help = fmt::format("{} --help", app.get_name());
  if (flag == std::string::npos || at == std::string::npos || at < flag + 2 || !said.ends_with('}')) {
    return usage_error(said, help);
  }
  const size_t words = at + kNotIn.size();
  const std::string found = said.substr(flag + 2, at - flag - 2);
  const std::vector<std::string> known = split(said.substr(words, said.size() - 1 - words), ',');
  const std::string near = nearest_name(found, known);
  return usage_error(
      fmt::format("{}: expected one of {}, found \"{}\"", said.substr(0, flag), join(known, ", "), found),
      near.empty() ? help : fmt::format("did you mean {}?", near));
}

/// Flags are values here ("--strict true"), and so may those be that need none ("--json true").
std::vector<std::string> with_values_joined(const CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> out;
  for (const auto& word : args) {
    const auto* option = out.empty() || !out.back().starts_with("--") ? nullptr : app.get_option_no_throw(out.back());
    if (option != nullptr && option->get_items_expected_max() == 0 && (word == "true" || word == "false")) {
      out.back() += "=" + word;
    } else {
      out.push_back(word);
    }
  }
  return out;
}

/// A flag's text as the JSON value it spells.
Json typed(const std::string& text) {
  const Json parsed = parse_json_or_discard(text);
  return parsed.is_boolean() || parsed.is_number() ? parsed : Json(text);
}

/// A number that nobody looks at may be NaN, negative or beyond what the code can count with.
void require_bounds(CLI::App& app) {
  const auto numbers = app.get_options([](const CLI::Option* option) {
    const std::string type = option->get_type_name();
    return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
  });
  for (auto* option : numbers) {
    try {
      (void)option->get_validator();
    } catch (const CLI::OptionNotFound&) {
      check(false, fmt::format("{} {} takes a number and has no bounds", app.get_name(), option->get_name()));
    }
  }
}

/// CLI11 says "Could not convert"; a person reads what is taken.
void say_truth_values(CLI::App& app) {
  const auto truths = app.get_options([](const CLI::Option* option) {
    return option->get_type_name().starts_with("BOOLEAN") && option->get_items_expected_max() == 1;
  });
  const CLI::Validator truth(
      [](std::string& text) {
        const std::string word = CLI::detail::to_lower(text);
        const bool known = word == "true" || word == "false" || word == "1" || word == "0";
        return known ? std::string() : fmt::format("expected true or false, found \"{}\"", text);
      },
      "");
  for (auto* option : truths) option->check(truth);
}

bool wants_all(const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help-all" || args[i] == "--help_all") return true;
    if ((args[i] == "--help" || args[i] == "-h") && i + 1 < args.size() && args[i + 1] == "all") return true;
  }
  return false;
}

/// What is listed of the flags from now on: the usual ones. Returns how many others there are.
int keep_usual(CLI::App& app, const UsualFlags& usual) {
  int others = 0;
  for (auto* option : app.get_options([](const CLI::Option* one) { return is_listed(*one); })) {
    const auto& names = option->get_lnames();
    const auto is_usual = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
    if (is_usual("help") || std::ranges::any_of(usual, is_usual)) continue;
    option->group("");
    ++others;
  }
  return others;
}

void print_help(CLI::App& app, bool all, const UsualFlags& usual) {
  const int others = all || usual.empty() ? 0 : keep_usual(app, usual);
  std::cout << app.help();
  if (others > 0) std::cout << fmt::format("\n{} more flags: {} --help all\n", others, app.get_name());
}

}  // namespace

bool parse_flags(CLI::App& app, const std::vector<std::string>& args, const UsualFlags& usual) {
  require_bounds(app);
  say_truth_values(app);
  const bool all = wants_all(args);
  if (all) {
    print_help(app, all, usual);
    return false;
  }
  std::vector<std::string> reversed = with_values_joined(app, args);
  std::ranges::reverse(reversed);  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    print_help(app, all, usual);
    return false;
  } catch (const CLI::ExtrasError&) {
    throw unknown_flag(app);
  } catch (const CLI::RequiredError& e) {
    if (!app.remaining().empty()) throw unknown_flag(app);  // a slip in the name of the very flag that is missed
    throw usage_error(e.what(), fmt::format("{} --help", app.get_name()));
  } catch (const CLI::ArgumentMismatch& e) {
    throw wrong_count(app, e.what());
  } catch (const CLI::ParseError& e) {
    throw wrong_value(app, e.what());
  }
  return true;
}

Json flags_as_json(const CLI::App& app) {
  Json json = Json::object();
  for (const auto* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_group().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    const auto values = option->count() > 0 ? option->results() : std::vector<std::string>{};
    const bool list = option->get_items_expected_max() > 1;
    if (list) {
      json[name] = values;
    } else if (!values.empty()) {
      json[name] = typed(values.back());
    } else {
      json[name] = option->get_default_str().empty() ? Json(nullptr) : typed(option->get_default_str());
    }
  }
  return json;
}

}  // namespace lockstep
