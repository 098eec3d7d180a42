#include "lockstep/cli/flags.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

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
struct OtherNames {
  const char *ours, *theirs;  // theirs: several, with blanks between
};
constexpr OtherNames kOtherNames[] = {
    {"learning_rate", "lr"},
    {"num_train_epochs", "epochs epoch num_epochs n_epochs"},
    {"max_steps", "steps num_steps max_iters"},
    {"resume_from_checkpoint", "resume resume_from"},
    {"output_dir", "output out out_dir save_dir"},
    {"output", "out output_dir output_path"},
    {"result_path", "output_path output_file"},
    {"nproc", "nproc_per_node num_processes num_gpus gpus np"},
    {"world", "world_size"},
    {"max_length", "cutoff_len max_len max_seq_len max_seq_length model_max_length seq_len"},
    {"per_device_train_batch_size", "batch_size train_batch_size micro_batch_size train_micro_batch_size_per_gpu"},
    {"batch_size", "bs"},
    {"per_device_eval_batch_size", "eval_batch_size"},
    {"gradient_accumulation_steps", "grad_accum grad_accum_steps accumulate_grad_batches"},
    {"gradient_checkpointing", "grad_checkpointing activation_checkpointing recompute"},
    {"model", "model_name_or_path model_name model_path base_model pretrained checkpoint ckpt"},
    {"dataset", "data data_path train_file train_data train_dataset"},
    {"val_dataset", "eval_dataset eval_file validation_file test_file"},
    {"split_dataset_ratio", "val_size"},
    {"torch_dtype", "precision mixed_precision"},
    {"lr_scheduler_type", "lr_scheduler scheduler"},
    {"warmup_ratio", "warmup"},
    {"weight_decay", "wd"},
    {"max_grad_norm", "grad_clip gradient_clipping clip_grad_norm"},
    {"deepspeed", "zero_stage zero ds_config"},
    {"logging_steps", "log_interval log_steps"},
    {"save_steps", "save_interval save_every"},
    {"eval_steps", "eval_interval"},
    {"dataloader_num_workers", "num_workers workers"},
    {"max_new_tokens", "max_tokens max_gen_len num_predict"},
    {"temperature", "temp"},
    {"prompt", "question query text"},
    {"image", "img picture"},
    {"freeze_vit", "freeze_vision_tower"},
    {"freeze_aligner", "freeze_multi_modal_projector"},
    {"freeze_llm", "freeze_language_model"},
    {"transport", "transport_backend backend"},
    {"patience", "timeout"},
    {"overwrite", "force_overwrite"},
    {"size", "size_name"},
    {"family", "model_type"},
    {"vocab_size", "vocab"},
};

/// `name`, with its dashes, as one of the app's flags; "": none is near.
std::string meant_flag(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = known_flags(app);
  std::string word = CLI::detail::to_lower(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::ranges::replace(word, '-', '_');
  const auto is_known = [&](const std::string& flag) { return std::ranges::find(known, flag) != known.end(); };
  if (is_known("--" + word)) return "--" + word;
  for (const auto& other : kOtherNames) {
    const auto theirs = split(other.theirs, ' ');
    const bool meant = std::ranges::find(theirs, word) != theirs.end();
    if (meant && is_known(std::string("--") + other.ours)) return std::string("--") + other.ours;
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

namespace {

void parse_words(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> reversed = with_values_joined(app, args);
  std::ranges::reverse(reversed);  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ExtrasError&) {
    throw unknown_flag(app);
  } catch (const CLI::RequiredError& e) {
    if (!app.remaining().empty()) throw unknown_flag(app);  // a slip in the name of the very flag that is missed
    throw usage_error(e.what(), fmt::format("{} --help", app.get_name()));
  } catch (const CLI::ArgumentMismatch& e) {
    throw wrong_count(app, e.what());
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& e) {
    throw wrong_value(app, e.what());
  }
}

/// Names a flag by what stands on the command line where it has another name here.
UserError as_given(const UserError& error, const Translation& translation) {
  for (const auto& [own, given] : translation.renamed) {
    if (std::string(error.what()).starts_with(own))
      return usage_error(fmt::format("{} is {}", given, error.what()), error.hint());
  }
  return error;
}

}  // namespace

bool parse_flags(CLI::App& app, const std::vector<std::string>& args, const UsualFlags& usual, OtherStacks* others) {
  require_bounds(app);
  say_truth_values(app);
  const bool all = wants_all(args);
  if (all) {
    print_help(app, all, usual);
    return false;
  }
  Translation translation{.words = args};
  if (others != nullptr) {
    const auto has = [&](const std::string& name) { return app.get_option_no_throw("--" + name) != nullptr; };
    translation = translate(others->verb, args, has);
    others->notices = translation.notices();
    others->unsaid = translation.unsaid;
  }
  try {
    parse_words(app, translation.words);
  } catch (const CLI::CallForHelp&) {
    print_help(app, all, usual);
    return false;
  } catch (const UserError& error) {
    throw as_given(error, translation);
  }
  return true;
}

CLI::Option* add_word_flag(CLI::App& app, const std::string& names, const std::string& type,
                           const std::string& standard, const std::string& help,
                           const std::function<std::string(const std::string& text)>& read) {
  const std::string name = names.substr(0, names.find(','));
  const auto taken = [read, name](const std::string& text) {
    const std::string fault = read(text);
    if (!fault.empty()) throw CLI::ValidationError(name, fault);
  };
  return app.add_option_function<std::string>(names, taken, help)->type_name(type)->default_str(standard);
}

Json flags_as_json(const CLI::App& app) {
  Json json = Json::object();
  for (const auto* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    if (option->get_group().empty() && option->count() == 0) continue;  // help does not show it, and nobody gave it
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
