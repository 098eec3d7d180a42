#include "lockstep/session/adapter_base.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

Json read_object(const fs::path& path) {
  if (!fs::exists(path)) return Json::object();
  Json json = read_json(path);
  return json.is_object() ? json : Json::object();
}

std::string text_of(const Json& json, const char* key) {
  return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

/// What was said of a model whose parts stand apart. How its rows were spelled is no part of it.
Joint joint_of(const Json& args) {
  Joint joint{.projector = text_of(args, "pretrain_mm_mlp_adapter"),
              .projector_type = text_of(args, "mm_projector_type"),
              .select_feature = text_of(args, "mm_vision_select_feature"),
              .aspect_ratio = text_of(args, "image_aspect_ratio")};
  if (const Json layer = args.value("mm_vision_select_layer", Json()); layer.is_number_integer())
    joint.select_layer = layer.get<int64_t>();
  // A projector that was made anew and not trained stands in no file: it is made again.
  if (const Json seed = args.value("seed", Json()); seed.is_number_unsigned()) joint.seed = seed.get<uint64_t>();
  return joint;
}

std::vector<std::string> tokens_of_adapter(const fs::path& adapter) {
  std::vector<std::string> tokens;
  const Json args = read_object(adapter / "args.json"), listed = args.value("new_special_tokens", Json());
  for (const auto& token : listed.is_array() ? listed : Json::array()) {
    if (token.is_string()) tokens.push_back(token.get<std::string>());
  }
  return tokens;
}

std::string described(const std::vector<std::string>& tokens) {
  return tokens.empty() ? "a tokenizer without new tokens" : "the new tokens " + cut_text(join(tokens, " "));
}

}  // namespace

AdapterBase base_of_adapter(const fs::path& adapter) {
  expect_adapter_folder(adapter);
  const Json args = read_object(adapter / "args.json"), config = read_object(adapter / "adapter_config.json");
  AdapterBase base;
  const std::string dtype = text_of(args, "torch_dtype");
  if (!dtype.empty()) base.dtype = dtype_from_flag(dtype);
  std::vector<std::string> tried;
  for (const std::string& named :
       {text_of(args, "model"), text_of(args, "model_dir"), text_of(config, "base_model_name_or_path")}) {
    if (named.empty()) continue;
    for (const fs::path& place : {fs::path(named), adapter / named}) {
      if (fs::exists(place / "config.json")) {
        base.place = {place, text_of(args, "vision_tower"), joint_of(args)};
        return base;
      }
    }
    tried.push_back(named);
  }
  throw usage_error(fmt::format("--adapters {}: expected the folder of its base model, found {}", adapter.string(),
                                tried.empty() ? "no file that names it"
                                              : fmt::format("no model in {}, which its files name", join(tried, ", "))),
                    "--model DIR: the folder of the model that the adapter was trained on");
}

int64_t token_rows_of(const fs::path& adapter) {
  static constexpr std::array kTables = {"embed_tokens", "tok_embeddings", "lm_head"};
  std::set<int64_t> rows;
  try {
    for (const auto& [file, spec] : AdapterFolder::open(adapter).tensors()) {
      const std::vector<std::string> parts = split(spec.name, '.');
      const auto is = [&](const char* part) { return std::ranges::find(parts, part) != parts.end(); };
      const bool table = std::ranges::any_of(kTables, is) && spec.shape.size() == 2 && parts.back() == "weight";
      if (table && !is("lora_A") && !is("lora_B") && !is("talker")) rows.insert(spec.shape[0]);
    }
  } catch (const Error&) {
    return 0;  // what is wrong with it is told where it is opened
  }
  return rows.size() == 1 ? *rows.begin() : 0;
}

std::string unknown_tokens(const fs::path& adapter, const fs::path& model, const Tokenizer& tokenizer) {
  const std::string file = "tokenizer.json";
  const TokenizerFolder theirs(adapter), ours(model);
  std::vector<std::string> unknown;
  try {
    if (!theirs.has(file) || (ours.has(file) && ours.text(file) == theirs.text(file))) return "";
    const Tokenizer other = Tokenizer::load(theirs);
    for (int64_t id = tokenizer.vocab_size(); id < other.vocab_size(); ++id) {
      std::string token = other.token_of(static_cast<int32_t>(id));
      if (!token.empty() && !tokenizer.id_of(token)) unknown.push_back(std::move(token));
    }
  } catch (const Error&) {
    return "";  // of a kind that is not read: nothing is computed with it
  }
  if (unknown.empty()) return "";
  return fmt::format(
      "--adapters {}: its {} has {} tokens that the model's has not, and which are read as other text: "
      "--new_special_tokens {} if its rows were spelled with them",
      adapter.string(), file, unknown.size(), cut_text(join(unknown, " ")));
}

std::string other_template(const fs::path& adapter, const fs::path& model) {
  const auto same = [&](ChatTemplate::Reader reader) {
    std::string one = ChatTemplate::load(adapter, reader).source(), other = ChatTemplate::load(model, reader).source();
    for (std::string* text : {&one, &other}) {
      if (text->ends_with('\n')) text->pop_back();    // neither of these
      if (text->ends_with("%}\n")) text->pop_back();  // is written
    }
    return one == other;
  };
  try {
    if (!ChatTemplate::stands_in(adapter) || !ChatTemplate::stands_in(model)) return "";
    if (same(ChatTemplate::Reader::kTokenizer) || same(ChatTemplate::Reader::kProcessor)) return "";
  } catch (const Error&) {
    return "";  // as for its tokens
  }
  return fmt::format(
      "--adapters {}: its chat template is another than that of {}, which spells the rows here; if it was trained with "
      "its own, give the base that: a copy of the folder with its chat_template.jinja",
      adapter.string(), model.string());
}

ModelPlace completed(ModelPlace given, const fs::path& adapter) {
  const std::vector<std::string> known = tokens_of_adapter(adapter);
  if (given.new_tokens.empty()) given.new_tokens = known;
  if (given.new_tokens.size() < known.size() || !std::equal(known.begin(), known.end(), given.new_tokens.begin())) {
    throw usage_error(
        fmt::format("--new_special_tokens {}: expected the tokens that the adapter {} was trained with first, {}",
                    cut_text(join(given.new_tokens, " ")), adapter.string(), cut_text(join(known, " "))),
        "leave the flag out: the adapter says them; others may stand behind them");
  }
  given.token_rows = token_rows_of(adapter);
  if (!given.folder.empty()) return given;
  const AdapterBase said = base_of_adapter(adapter);
  given.folder = said.place.folder;
  if (given.vision_tower.empty()) given.vision_tower = said.place.vision_tower;
  if (given.joint.said().empty()) given.joint = said.place.joint;
  return given;
}

void take_from_adapters(RunOptions& run) {
  if (run.adapters.empty()) return;
  const fs::path& first = run.adapters.front().dir;
  const auto agree = [&](const fs::path& other, const std::string& one, const std::string& two, const char* flag) {
    if (one == two) return;
    throw usage_error(fmt::format("--adapters {} and {}: the first was trained over {}, the other over {}",
                                  first.string(), other.string(), one, two),
                      fmt::format("{}: what all of them are to be used with", flag));
  };
  const bool asks_base = run.model.empty(), asks_codes = !run.quant.asked();
  const bool asks_tokens = run.new_tokens.empty();
  const ModelPlace place = completed(run.place(), first);
  run.model = place.folder;
  run.vision_tower = place.vision_tower;
  run.joint = place.joint;
  run.new_tokens = place.new_tokens;
  run.token_rows = place.token_rows;
  if (asks_base && !run.dtype) run.dtype = base_of_adapter(first).dtype;
  if (asks_codes) run.quant = quant_of_adapter(first);
  for (const auto& other : std::span(run.adapters).subspan(1)) {
    if (asks_base) {
      agree(other.dir, fs::weakly_canonical(run.model).string(),
            fs::weakly_canonical(base_of_adapter(other.dir).place.folder).string(), "--model DIR");
    }
    if (asks_tokens) {
      agree(other.dir, described(run.new_tokens), described(tokens_of_adapter(other.dir)),
            "--new_special_tokens TOKEN…");
    }
    if (asks_codes) {
      agree(other.dir, run.quant.describe(), quant_of_adapter(other.dir).describe(), "--quant_bits");
    }
  }
}

QuantOptions quant_of_adapter(const fs::path& adapter) {
  const Json args = read_object(adapter / "args.json");
  QuantOptions out;
  if (const Json bits = args.value("quant_bits", Json()); bits.is_number_integer()) out.bits = bits.get<int>();
  const std::string method = text_of(args, "quant_method");
  if (out.bits != 0 && !method.empty() && method != "bnb" && method != "bitsandbytes") {
    throw checkpoint_error(
        fmt::format("{}: quant_method: expected bnb, found {}: the adapter was trained over other codes",
                    (adapter / "args.json").string(), method),
        "merge it where it was trained, and take the merged folder as --model");
  }
  if (const std::string type = text_of(args, "bnb_4bit_quant_type"); !type.empty()) out.type = type;
  const Json nested = args.value("bnb_4bit_use_double_quant", Json());  // ours say 1 and 0
  if (nested.is_boolean()) out.nested = nested.get<bool>();
  if (nested.is_number()) out.nested = nested.get<double>() != 0;
  for (const auto& name : args.value("llm_int8_skip_modules", Json::array())) {
    if (name.is_string()) out.skip.push_back(name.get<std::string>());
  }
  out.check();
  return out;
}

}  // namespace lockstep
