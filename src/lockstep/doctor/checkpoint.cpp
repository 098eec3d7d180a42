#include "lockstep/doctor/checkpoint.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/chat_processor.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr const char* kCheck = "checkpoint";

CheckResults look_at_config(CheckpointParts& parts, const std::set<Component>& without, bool audio_output) {
  parts.config.emplace(load_config(parts.place));
  parts.family = &family_of(*parts.config);
  Model model = parts.family->build(*parts.config);
  leave_out(model, without);
  if (!audio_output) leave_out_speech(model);
  parts.model.emplace(std::move(model));
  CheckResults results{fine("config", fmt::format("{}: {} layers, {} tokens", parts.family->name,
                                                  parts.model->dims.layers, parts.model->dims.vocab))};
  for (const auto& notice : parts.config->notices()) {
    results.push_back(
        warning("config", notice, "a config.json that says what the files hold opens the same everywhere"));
  }
  return results;
}

/// Each file's header was read, and its size is what the header says.
CheckResults look_at_files(CheckpointParts& parts) {
  const fs::path& dir = parts.place.folder;
  parts.weights.emplace(parts.family != nullptr ? open_weights(*parts.family, *parts.config) : Weights::open(dir));
  const int64_t borrowed = parts.weights->borrowed_bytes();
  return {fine("files", fmt::format("{} with {} tensors, {}{}, complete",
                                    parts.files() == 1 ? "1 file" : fmt::format("{} files", parts.files()),
                                    parts.weights->specs().size(), format_bytes(parts.weights->total_bytes()),
                                    borrowed == 0 ? ""
                                                  : fmt::format(" ({} of it from {})", format_bytes(borrowed),
                                                                parts.weights->borrowed_from().front().string())))};
}

CheckResults look_at_tensors(const CheckpointParts& parts) {
  const KeyMap keys = KeyMap::match(*parts.model, *parts.weights);
  std::map<std::string, int64_t> dtypes;
  for (const auto& spec : parts.weights->specs()) ++dtypes[std::string(dtype_name(spec.dtype))];
  std::vector<std::string> words;
  words.reserve(dtypes.size());
  for (const auto& [name, count] : dtypes) words.push_back(fmt::format("{} {}", count, name));
  const std::string text = fmt::format("names, dtypes and shapes are as the config says ({}; names of {})",
                                       join(words, ", "), keys.dialect());
  return {fine("tensors", text)};
}

CheckResults look_at_tokenizer(const CheckpointParts& parts) {
  const int64_t tokens = Tokenizer::load(tokenizer_of(parts.place)).vocab_size();
  if (!parts.model) return {fine("tokenizer", fmt::format("{} tokens", tokens))};
  return {judge_vocabulary(tokens, parts.model->dims.vocab)};
}

/// `prepared`: the family's processor was made, with a format of its own where the folder has none.
CheckResults look_at_template(const CheckpointParts& parts, bool prepared) {
  try {
    if (prepared && !ChatTemplate::stands_in(parts.place.folder))
      return {fine("chat template", "none in the folder: the family brings its own")};
    (void)ChatTemplate::load(parts.place.folder);
  } catch (const Error& error) {
    return {warning("chat template", error.message(),
                    "copy chat_template.jinja (or tokenizer_config.json) from the model's page")};
  }
  return {fine("chat template", "compiles")};
}

}  // namespace

CheckResult judge_vocabulary(int64_t tokens, int64_t rows) {
  if (tokens <= rows) return fine("tokenizer", fmt::format("{} tokens, the embedding has {} rows", tokens, rows));
  return failure("tokenizer",
                 fmt::format("{} tokens, but the embedding has only {} rows: ids from {} on cannot be looked up",
                             tokens, rows, rows),
                 "take the tokenizer files that belong to these weights, or resize the embedding with transformers' "
                 "resize_token_embeddings",
                 ExitCode::kCheckpoint);
}

CheckpointParts examine_checkpoint(const ModelPlace& place, const std::set<Component>& without, bool audio_output,
                                   CheckReport& report) {
  const fs::path& dir = place.folder;
  CheckpointParts parts{.place = place};
  const auto look = [&](const char* name, const std::function<CheckResults()>& at) { report.run(kCheck, name, at); };
  look("folder", [&]() -> CheckResults {
    if (fs::is_directory(dir)) return {};
    throw checkpoint_error(
        fmt::format("{}: expected the folder of a checkpoint, found {}", dir.string(), found_for_folder(dir)),
        "models are read from local folders: name the one that holds it, or download it first");
  });
  if (!fs::is_directory(dir)) return parts;
  look("config", [&] { return look_at_config(parts, without, audio_output); });
  look("files", [&] { return look_at_files(parts); });
  if (parts.model && parts.weights) look("tensors", [&] { return look_at_tensors(parts); });
  look("tokenizer", [&] { return look_at_tokenizer(parts); });
  bool prepared = false;
  if (parts.family != nullptr && parts.family->processor) {
    look("processor", [&]() -> CheckResults {
      (void)parts.family->processor(place);
      prepared = true;
      return {fine("processor", "text and media can be prepared")};
    });
  }
  look("chat template", [&] { return look_at_template(parts, prepared); });
  return parts;
}

}  // namespace lockstep
