#include "lockstep/session/quantising.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/adapters.h"

namespace lockstep {

QuantFormat QuantOptions::format(Dtype compute) const {
  if (bits == 8) return {.kind = QuantKind::kInt8};
  return {.kind = type == "fp4" ? QuantKind::kFp4 : QuantKind::kNf4, .nested = nested, .dtype = compute};
}

std::string QuantOptions::describe() const {
  if (!asked()) return "as the folder has them";
  const std::string kept = skip.empty() ? "towers and projectors" : join(skip, ", ");
  if (bits == 8) return fmt::format("8 bits, without {}", kept);
  return fmt::format("{} bits, {}{}, without {}", bits, type, nested ? " with nested scales" : "", kept);
}

void QuantOptions::check() const {
  if (bits != 0 && bits != 4 && bits != 8) {
    throw usage_error(fmt::format("--quant_bits {}: expected 4 or 8", bits), "--quant_bits 4");
  }
  if (type == "nf4" || type == "fp4") return;
  throw usage_error(fmt::format("--bnb_4bit_quant_type {}: expected nf4 or fp4", type), "--bnb_4bit_quant_type nf4");
}

std::optional<QuantOptions> quantised_as(const HfConfig& config) {
  if (!config.has("quantization_config")) return std::nullopt;
  const HfConfig said = config.at("quantization_config");
  QuantOptions out;
  out.bits = said.flag("load_in_8bit", false) ? 8 : said.flag("load_in_4bit", false) ? 4 : 0;
  const std::string method = said.text("quant_method", out.asked() ? "bitsandbytes" : "");
  if (method != "bitsandbytes" || !out.asked()) {
    throw checkpoint_error(
        fmt::format("{}: quantization_config: expected bitsandbytes with load_in_4bit or load_in_8bit, found \"{}\", "
                    "which is not read",
                    config.where(), method),
        "take the folder of the unquantised model, and --quant_method bnb --quant_bits 4 where memory is short");
  }
  out.type = said.text("bnb_4bit_quant_type", "fp4");
  out.nested = said.flag("bnb_4bit_use_double_quant", false);
  out.skip = {"none"};
  for (auto& name : said.texts("llm_int8_skip_modules")) out.skip.push_back(std::move(name));
  out.check();
  return out;
}

std::shared_ptr<const Quantisation> quantisation_for(const ModelFolder& folder, const QuantOptions& asked,
                                                     Dtype compute, const Weights* weights, const KeyMap* keys) {
  asked.check();
  const bool read = weights != nullptr && keys != nullptr;
  const auto said = quantised_as(folder.config);
  if (asked.asked() && (said || (read && weights->any_quantised()))) {
    throw usage_error(
        fmt::format("--quant_bits {}: {} holds codes of few bits already", asked.bits, folder.path.string()),
        "leave --quant_bits out, or take the folder of the unquantised model");
  }
  Quantisation made;
  if (read && !asked.asked()) {
    made = quantisation_of(folder.model, *weights, *keys);
  } else if (asked.asked() || said) {
    const QuantOptions& options = asked.asked() ? asked : *said;
    const QuantChoice choice{.format = options.format(compute), .skip = options.skip, .strict = asked.asked()};
    made = choose_quantisation(folder.model, naming_of_adapters(folder.model, read ? keys->dialect() : ""), choice);
  }
  return made.formats.empty() ? nullptr : std::make_shared<const Quantisation>(std::move(made));
}

}  // namespace lockstep
