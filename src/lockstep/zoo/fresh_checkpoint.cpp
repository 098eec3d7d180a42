#include "lockstep/zoo/fresh_checkpoint.h"

#include <algorithm>
#include <map>
#include <regex>
#include <system_error>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/train/bpe_trainer.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

using Files = std::vector<std::pair<std::string, Json>>;

/// Embedding rows are a multiple of this, so that matrices keep even shapes; rows without a token are never used.
constexpr int64_t kVocabQuantum = 64;

int64_t usual_vocab(const std::string& size) { return size == "small" ? 16384 : 512; }

Files files_of(const Family& family, const std::string& size, int64_t vocab) {
  Files files = family.fresh_files ? family.fresh_files(size, vocab) : Files{};
  if (!files.empty()) return files;
  throw usage_error(fmt::format("--size {}: family {} has no such size", size, family.name),
                    "sizes are tiny, small and demo");
}

Json& file_named(Files& files, const std::string& name) {
  const auto at = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.first == name; });
  check(at != files.end(), "a family's fresh files have no " + name);
  return at->second;
}

/// What a family says of the tokenizer beside what is learnt.
const Json* tokenizer_words(const Files& files) {
  const auto at =
      std::find_if(files.begin(), files.end(), [](const auto& f) { return f.first == "tokenizer_config.json"; });
  return at == files.end() ? nullptr : &at->second;
}

std::string template_text(const Files& files) {
  std::string text;
  for (const auto& [name, value] : files) {
    if (name.starts_with("chat_template")) text += value.is_string() ? value.get<std::string>() : value.dump();
  }
  return text;
}

/// <|im_start|> and the like that a chat template writes: they must be tokens.
std::vector<std::string> marks_in(const std::string& text) {
  static const std::regex kMark(R"(<\|[a-z0-9_]+\|>)");
  std::vector<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), kMark), end; at != end; ++at) {
    if (std::find(out.begin(), out.end(), at->str()) == out.end()) out.push_back(at->str());
  }
  return out;
}

/// Where the config says which token is meant by its text: "image_token_id": "<image>".
std::vector<std::string> named_tokens(const Json& config) {
  std::vector<std::string> out;
  for (const auto& [key, value] : config.items()) {
    if (value.is_string() && (key.ends_with("_token_id") || key.ends_with("_token_index"))) out.push_back(value);
    if (!value.is_object()) continue;
    for (const auto& inner : named_tokens(value)) out.push_back(inner);
  }
  return out;
}

/// What kind of tokenizer a family's template is written for.
BpeTrainerOptions tokenizer_options(const Files& files, const std::vector<std::string>& named, int64_t vocab) {
  const std::string text = template_text(files);
  const auto writes = [&](const char* mark) { return text.find(mark) != std::string::npos; };
  BpeTrainerOptions options{.kind = BpeKind::kSentencePiece,
                            .vocab_size = vocab,
                            .special_tokens = {},
                            .bos = "<s>",
                            .eos = "</s>",
                            .pad = "<pad>"};
  if (writes("<|im_start|>")) {
    options.kind = BpeKind::kByteLevel;
    options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    options.bos = "";
    options.eos = "<|im_end|>";
    options.pad = "<|endoftext|>";
  } else if (writes("<|eot_id|>")) {
    options.kind = BpeKind::kByteLevel;
    options.special_tokens = {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"};
    options.bos = "<|begin_of_text|>";
    options.eos = "<|eot_id|>";
    options.pad = "<|end_of_text|>";
  }
  auto marks = marks_in(text);
  marks.insert(marks.end(), named.begin(), named.end());
  for (const auto& mark : marks) {
    auto& known = options.special_tokens;
    if (std::find(known.begin(), known.end(), mark) == known.end()) known.push_back(mark);
  }
  if (options.pad == "<pad>") options.special_tokens.emplace_back("<pad>");
  return options;
}

void set_if_there(Json& config, const char* key, const std::optional<int32_t>& id) {
  if (config.contains(key)) config[key] = id ? Json(*id) : Json(nullptr);
}

/// The ids that the tokenizer gave, wherever the config speaks of them.
void put_token_ids(Json& config, const Tokenizer& tokenizer) {
  const auto id = [&](const char* role) {
    const auto token = tokenizer.special(role);
    return token ? tokenizer.id_of(*token) : std::nullopt;
  };
  set_if_there(config, "bos_token_id", id("bos_token"));
  set_if_there(config, "eos_token_id", id("eos_token"));
  set_if_there(config, "pad_token_id", id("pad_token"));
  for (const auto& [key, value] : config.items()) {
    if (value.is_string() && (key.ends_with("_token_id") || key.ends_with("_token_index"))) {
      value = tokenizer.id_of(value.get<std::string>()).value();
    }
  }
  for (const char* part : {"thinker_config", "text_config", "vision_config"}) {
    if (config.contains(part)) put_token_ids(config[part], tokenizer);
  }
}

void put_dtype(Json& config, Dtype dtype) {
  config["torch_dtype"] = torch_dtype_name(dtype);
  for (const char* part : {"thinker_config", "text_config", "vision_config"}) {
    if (config.contains(part) && config[part].contains("torch_dtype")) put_dtype(config[part], dtype);
  }
}

Json generation_config(const Tokenizer& tokenizer) {
  Json out = Json::object();
  for (const char* role : {"bos_token", "eos_token", "pad_token"}) {
    const auto token = tokenizer.special(role);
    const auto id = token ? tokenizer.id_of(*token) : std::nullopt;
    if (id) out[std::string(role) + "_id"] = *id;
  }
  return out;
}

std::vector<ParamSource> tensors_of(const Model& model) {
  std::vector<ParamSource> out;
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      if (!param.tied) out.insert(out.end(), param.sources.begin(), param.sources.end());
    }
  }
  out.insert(out.end(), model.unused.begin(), model.unused.end());
  return out;
}

double spread_of(const Family& family, const HfConfig& config, const std::string& key) {
  return family.fresh_spread ? family.fresh_spread(config, key) : text_spread(config);
}

/// As a fresh Hugging Face model: scales of norms 1, biases 0, everything else normal.
Tensor fresh_values(const ParamSource& source, double std, uint64_t seed) {
  if (source.key.ends_with(".bias")) return zeros(source.shape, Dtype::kF32);
  if (source.key.ends_with(".weight") && source.shape.size() == 1) return full(source.shape, 1.0, Dtype::kF32);
  Tensor out = empty(source.shape, Dtype::kF32);
  fill_normal(out, std, seed, source.key);
  return out;
}

void write_weights(const fs::path& dir, const HfConfig& config, const Family& family, const InitOptions& options,
                   InitReport& report) {
  const std::vector<ParamSource> tensors = tensors_of(family.build(config));
  std::vector<TensorSpec> specs;
  for (const auto& source : tensors) {
    specs.push_back({source.key, options.dtype, source.shape});
    report.parameters += numel_of(source.shape);
    report.bytes += specs.back().bytes();
  }
  SafetensorsWriter out(dir, specs);
  for (const auto& source : tensors)
    out.write(source.key, fresh_values(source, spread_of(family, config, source.key), options.seed));
  out.finish();
}

InitReport write_all(const fs::path& dir, const InitOptions& options) {
  const Family& family = family_named(options.family);
  const int64_t wanted = options.vocab_size > 0 ? options.vocab_size : usual_vocab(options.size);
  Files files = files_of(family, options.size, wanted);
  auto named = named_tokens(file_named(files, "config.json"));
  if (const Json* words = tokenizer_words(files)) {
    for (const Json& token : words->at("extra_special_tokens")) {
      if (std::ranges::find(named, token.get<std::string>()) == named.end()) named.push_back(token);
    }
  }
  const std::string corpus = options.corpus.empty() ? std::string(default_corpus()) : read_corpus(options.corpus);
  const FreshTokenizer fresh = train_tokenizer(corpus, tokenizer_options(files, named, wanted));
  for (const auto& [name, text] : fresh.files) write_text(dir / name, text);
  const Tokenizer tokenizer = Tokenizer::load(dir);

  InitReport report{.tokens = fresh.size,
                    .vocab_size = (fresh.size + kVocabQuantum - 1) / kVocabQuantum * kVocabQuantum};
  files = files_of(family, options.size, report.vocab_size);
  Json& config = file_named(files, "config.json");
  put_token_ids(config, tokenizer);
  put_dtype(config, options.dtype);
  write_json(dir / "generation_config.json", generation_config(tokenizer));
  for (const auto& [name, value] : files) {
    if (value.is_string()) {
      write_text(dir / name, value.get<std::string>());
      continue;
    }
    Json whole = fs::exists(dir / name) ? read_json(dir / name) : Json::object();
    whole.update(value);
    write_json(dir / name, whole);
  }
  write_weights(dir, HfConfig(config, (dir / "config.json").string()), family, options, report);
  return report;
}

}  // namespace

InitReport init_checkpoint(const InitOptions& options) {
  const fs::path target = fs::absolute(options.output_dir).lexically_normal();
  std::error_code problem;
  if (fs::exists(target) && (!fs::is_directory(target) || !fs::is_empty(target))) {
    throw usage_error(fmt::format("--output_dir {}: expected a new or empty folder, found {}", target.string(),
                                  fs::is_directory(target) ? "files in it" : "a file"),
                      "nothing was written; choose another name");
  }
  const fs::path name = target.has_filename() ? target : target.parent_path();
  const fs::path temporary = name.string() + fmt::format(".tmp-{}", ::getpid());
  make_folders(temporary);
  try {
    const InitReport report = write_all(temporary, options);
    fs::rename(temporary, name, problem);
    if (problem) throw data_error(fmt::format("{}: cannot be made ({})", name.string(), problem.message()));
    return report;
  } catch (...) {
    fs::remove_all(temporary, problem);
    throw;
  }
}

}  // namespace lockstep
