#include "lockstep/cli/swift_flags.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// `harmless`: values that change nothing, separated by '|'; "*": every value.
struct SwiftFlag {
  const char* name;
  const char* harmless;
  const char* why;
};

constexpr const char* kNotBuilt = "is not built yet";
constexpr const char* kOneWay = "there is one way here, and it is always used";

// Source: ms-swift 4.6 docs/source_en/Instruction/Command-line-parameters.md.
constexpr SwiftFlag kFlags[] = {
    {"attn_impl", "*", kOneWay},
    {"dataset_num_proc", "*", "rows are read when they are needed (--dataloader_num_workers threads)"},
    {"load_from_cache_file", "*", "there is no cache of data sets"},
    {"lazy_tokenize", "*", "rows are always read when they are needed"},
    {"use_hf", "*", "models are local folders"},
    {"model_type", "*", "the family follows from config.json"},
    {"template", "*", "the chat template of the checkpoint is used"},
    {"check_model", "*", "a checkpoint is always checked"},
    {"use_liger_kernel", "*", "the loss is always computed in chunks"},
    {"average_tokens_across_devices", "*", "the loss is always normalised by the tokens of all ranks"},
    {"dataloader_pin_memory", "*", kOneWay},
    {"dataloader_persistent_workers", "*", kOneWay},
    {"dataloader_prefetch_factor", "*", kOneWay},
    {"ddp_backend", "*", "--transport chooses"},
    {"ddp_timeout", "*", "--patience says how long a call may take"},
    {"ddp_find_unused_parameters", "*", "parameters without a gradient on some rank are no trouble"},
    {"gradient_checkpointing_kwargs", "*", kOneWay},
    {"logging_dir", "*", "TensorBoard files are in runs/ of the run folder"},
    {"disable_tqdm", "*", "one line a logging step is printed"},
    {"remove_unused_columns", "*", "columns that are not used are left alone"},
    {"model_author", "*", "it was for self-cognition data"},
    {"model_name", "*", "it was for self-cognition data"},
    {"optim", "adamw_torch|adamw_torch_fused|adamw_hf", "AdamW is the one optimizer"},
    {"bf16", "*", "--torch_dtype says what is computed in"},
    {"fp16", "*", "--torch_dtype says what is computed in"},
    {"save_safetensors", "true", "weights are always saved as safetensors"},
    {"sequence_parallel_size", "1", kNotBuilt},
    {"rlhf_type", "none", kNotBuilt},
    {"fsdp", "", "is not built: --deepspeed zero3 shards the same things"},
    {"fsdp_config", "", "is not built: --deepspeed zero3 shards the same things"},
    {"columns", "", kNotBuilt},
    {"new_special_tokens", "", kNotBuilt},
    {"rope_scaling", "none", kNotBuilt},
    {"external_plugins", "", kNotBuilt},
    {"custom_register_path", "", kNotBuilt},
    {"resume_only_model", "false", "is not built: take the checkpoint as --model"},
    {"ignore_data_skip", "false", "is not built: take the checkpoint as --model to begin with the first row"},
    {"push_to_hub", "false", kNotBuilt},
    {"use_galore", "false", kNotBuilt},
    {"cached_dataset", "", kNotBuilt},
};

bool is_harmless(const SwiftFlag& flag, const std::string& value) {
  const auto values = split(flag.harmless, '|');
  return std::find(values.begin(), values.end(), "*") != values.end() ||
         std::find(values.begin(), values.end(), CLI::detail::to_lower(value)) != values.end();
}

}  // namespace

void SwiftFlags::add_to(CLI::App& app) {
  for (const auto& flag : kFlags) {
    app.add_option(std::string("--") + flag.name, values_[flag.name])->expected(0, -1)->group("");  // "": not in --help
  }
}

std::vector<std::string> SwiftFlags::judge() const {
  std::vector<std::string> notices;
  for (const auto& flag : kFlags) {
    const auto& given = values_.at(flag.name);
    if (given.empty()) continue;
    const bool harmless =
        std::all_of(given.begin(), given.end(), [&](const auto& value) { return is_harmless(flag, value); });
    if (!harmless) {
      throw usage_error(fmt::format("--{} {}: {}", flag.name, join(given, " "), flag.why), "leave the flag out");
    }
    notices.push_back(fmt::format("--{} {} makes no difference: {}", flag.name, join(given, " "), flag.why));
  }
  return notices;
}

}  // namespace lockstep
