#include "lockstep/session/model_folder.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/known_tokens.h"
#include "lockstep/data/position_limit.h"
#include "lockstep/data/unbuilt_media.h"
#include "lockstep/data/without_template.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/session/quantising.h"
#include "lockstep/text/new_tokens.h"

namespace lockstep {
namespace {

/// Of the first tensor of floats, as transformers 5 has it where config.json says nothing; float32 where none is stored.
/// Source: transformers 5.23 modeling_utils.py _get_dtype.
Dtype dtype_of_files(const std::filesystem::path& dir) {
  try {
    for (const auto& spec : Weights::open(dir).specs()) {
      if (spec.dtype == Dtype::kF32 || spec.dtype == Dtype::kBF16 || spec.dtype == Dtype::kF16) return spec.dtype;
    }
  } catch (const Error&) {  // a config alone is planned with; files that are damaged are told where they are read
  }
  return Dtype::kF32;
}

}  // namespace

ModelFolder::ModelFolder(const ModelPlace& place, const std::set<Component>& without, bool audio_output)
    : path(place.folder), config(load_config(place)), family(family_of(config)), model(family.build(config)) {
  (void)quantised_as(config);  // codes that are not read are refused before any weight is looked at
  leave_out(model, without);
  if (!audio_output) leave_out_speech(model);
}

bool ModelFolder::sees() const {
  return std::ranges::any_of(model.blocks, [](const auto& b) { return !b->always_runs(); });
}

std::unique_ptr<Processor> ModelFolder::processor(bool use_chat_template) const {
  auto whole = limited_to_positions(of_known_tokens(family.processor(config.place()), model.dims.vocab),
                                    {.positions = model.dims.max_positions, .ends = model.dims.positions_end});
  if (use_chat_template) {
    whole->require_chat_template();
  } else {
    whole = without_chat_template(std::move(whole));
  }
  const Modalities unread = unread_media(model);
  if (unread.empty()) return whole;
  const std::string expected = sees() ? "a row without " + unread.names() : "a row of text alone";
  return without_media(std::move(whole), unread,
                       {.expected = expected, .reason = left_out_reason(model), .cure = left_out_cure(model)});
}

SideFiles ModelFolder::side_files(bool whole) const {
  SideFiles files = read_side_files(path);
  const auto put = [&](const std::string& name, std::string text) {
    std::erase_if(files, [&](const SideFile& file) { return file.name == name; });
    files.push_back({name, std::move(text)});
  };
  if (config.differs_from_file()) put("config.json", config.json().dump(2) + "\n");
  if (!config.place().new_tokens.empty()) {
    for (auto& [name, text] : files_with_tokens(path, config.place().new_tokens)) put(name, std::move(text));
  }
  if (!family.elsewhere.files) return files;
  for (auto& [name, text] : family.elsewhere.files(config, whole)) put(name, std::move(text));
  return files;
}

SideFiles ModelFolder::adapter_side_files() const {
  static constexpr std::array kBegins = {"tokenizer",    "tokenization_", "vocab",
                                         "merges",       "spiece",        "special_tokens_map",
                                         "added_tokens", "chat_template", "additional_chat_templates/"};
  static constexpr std::array kEnds = {".model", ".tiktoken"};
  if (config.place().new_tokens.empty()) return {};
  SideFiles files = side_files(/*whole=*/false);
  std::erase_if(files, [](const SideFile& file) {
    return std::ranges::none_of(kBegins, [&](const char* begin) { return file.name.starts_with(begin); }) &&
           std::ranges::none_of(kEnds, [&](const char* end) { return file.name.ends_with(end); });
  });
  return files;
}

Dtype ModelFolder::dtype_of_config() const {
  const HfConfig thinker = config.at("thinker_config");
  for (const HfConfig& part :
       {config, config.at("text_config"), config.at("llm_config"), thinker, thinker.at("text_config")}) {
    // The newer name counts where both stand.
    const std::string named = part.text("dtype", part.text("torch_dtype", ""));
    if (!named.empty()) return dtype_from_flag(named);
  }
  return dtype_of_files(path);
}

}  // namespace lockstep
