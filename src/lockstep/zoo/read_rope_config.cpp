#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep {
namespace {

/// One rope, whichever way it is spelt.
struct Spelling {
  HfConfig values;  // factor and the like
  std::string type;
  double theta;
};

/// Of two spellings the old one counts, as transformers has it; but for theta, which it would then take from nowhere.
Spelling spelling_of(const HfConfig& config, double usual_theta) {
  const HfConfig old = config.at("rope_scaling"), parameters = config.at("rope_parameters");
  const bool is_old = !old.json().empty();
  const HfConfig& values = is_old ? old : parameters;
  for (const auto& [key, value] : values.json().items()) {
    if (!value.is_object()) continue;
    throw checkpoint_error(
        fmt::format("{}: \"{}\": expected one rope for all layers, found one for a kind of layer", values.where(), key),
        "ropes that differ from layer to layer are not built");
  }
  if (is_old && parameters.has("rope_theta") && !old.has("rope_theta") && !config.has("rope_theta")) {
    throw checkpoint_error(
        fmt::format("{}: expected rope_theta within it, found it in rope_parameters, which do not count "
                    "beside rope_scaling",
                    old.where()),
        "keep one of the two, with all that it is to say");
  }
  return {values, values.text("rope_type", values.text("type", "default")),
          values.positive("rope_theta", config.positive("rope_theta", usual_theta))};
}

/// The positions that a stretched model was first trained with. A key of its own beside the rope's has the last word.
double first_positions(const HfConfig& config, const HfConfig& values, int64_t max_positions) {
  const char* const key = "original_max_position_embeddings";
  const SizeRange range{.most = kMaxPositions};
  return static_cast<double>(config.size(key, values.size(key, max_positions, range), range));
}

/// Of "linear" and "yarn". Not of "llama3": Llama 3.2 has 32 times 8192 there and is made for half as many.
/// Source: vLLM config/model.py _get_and_verify_max_len.
int64_t stretched_positions(double first, double factor) {
  return static_cast<int64_t>(std::min(first * factor, static_cast<double>(kMaxPositions)));
}

/// Low frequencies are stretched, high ones kept, those between blended.
void scale_as_llama3(std::vector<float>& frequencies, const HfConfig& values, double old) {
  const double factor = values.positive("factor", 8.0);
  const double low = values.positive("low_freq_factor", 1.0), high = values.positive("high_freq_factor", 4.0);
  if (high <= low) {
    throw checkpoint_error(fmt::format("{}: high_freq_factor: expected more than low_freq_factor {}, found {}",
                                       values.where(), low, high));
  }
  for (float& frequency : frequencies) {
    const double length = 2.0 * std::numbers::pi / static_cast<double>(frequency);
    if (length < old / high) continue;
    const double stretched = static_cast<double>(frequency) / factor;
    if (length > old / low) {
      frequency = static_cast<float>(stretched);
    } else {
      const double smooth = (old / length - low) / (high - low);
      frequency = static_cast<float>((1.0 - smooth) * stretched + smooth * static_cast<double>(frequency));
    }
  }
}

/// What the tables are multiplied by, as the stretched model attends more evenly.
double yarn_scaling(const HfConfig& values, double factor) {
  const auto grown = [&](double by) { return factor <= 1.0 ? 1.0 : 0.1 * by * std::log(factor) + 1.0; };
  const double mscale = values.number("mscale", 0.0), all = values.number("mscale_all_dim", 0.0);
  const double usual = mscale != 0.0 && all != 0.0 ? grown(mscale) / grown(all) : grown(1.0);
  const double scaling = values.positive("attention_factor", usual);
  if (std::isfinite(scaling) && scaling > 0.0) return scaling;
  throw checkpoint_error(
      fmt::format("{}: mscale {} and mscale_all_dim {}: expected a scaling above 0", values.where(), mscale, all));
}

/// Pairs that turn often within the first positions are kept, those that turn seldom stretched, along a ramp over the
/// pairs between. `first`: positions. Source: Peng et al. 2023, "YaRN", section 3.2 and 3.4.
void scale_as_yarn(RopeConfig& rope, const HfConfig& values, double theta, double first, double factor) {
  auto& frequencies = rope.inverse_frequencies;
  const auto pairs = static_cast<double>(frequencies.size());
  if (theta <= 1.0) {
    throw checkpoint_error(
        fmt::format("{}: rope_theta: expected more than 1 for yarn, found {}", values.where(), theta));
  }
  const auto pair_that_turns = [&](double times) {
    return pairs * std::log(first / (times * 2.0 * std::numbers::pi)) / std::log(theta);
  };
  double low = pair_that_turns(values.positive("beta_fast", 32.0));
  double high = pair_that_turns(values.positive("beta_slow", 1.0));
  if (values.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, 2.0 * pairs - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    const float stretched = static_cast<float>(static_cast<double>(frequencies[i]) / factor);
    frequencies[i] = stretched * (1.0F - kept) + frequencies[i] * kept;
  }
  rope.scaling = yarn_scaling(values, factor);
}

}  // namespace

RopeConfig read_rope_config(const HfConfig& config, int64_t head_dim, int64_t max_positions, double usual_theta) {
  const Spelling rope = spelling_of(config, usual_theta);
  const double partial = rope.values.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (partial != 1.0) {
    throw checkpoint_error(
        fmt::format("{}: partial_rotary_factor: expected 1 (whole heads turn), found {}", config.where(), partial));
  }
  RopeConfig made;
  for (int64_t i = 0; i < head_dim; i += 2) {  // in float32, as the models were trained with
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    made.inverse_frequencies.push_back(1.0F / std::pow(static_cast<float>(rope.theta), exponent));
  }
  if (rope.type == "linear") {
    const double factor = rope.values.positive("factor", 1.0);
    for (float& frequency : made.inverse_frequencies) frequency /= static_cast<float>(factor);
    made.positions = stretched_positions(first_positions(config, rope.values, max_positions), factor);
  } else if (rope.type == "llama3") {
    scale_as_llama3(made.inverse_frequencies, rope.values, first_positions(config, rope.values, max_positions));
  } else if (rope.type == "yarn") {
    const double first = first_positions(config, rope.values, max_positions);
    const double factor = rope.values.positive("factor", static_cast<double>(max_positions) / first);
    scale_as_yarn(made, rope.values, rope.theta, first, factor);
    made.positions = stretched_positions(first, factor);
  } else if (rope.type == "dynamic") {
    (void)rope.values.positive("factor", 1.0);
    made.grows = true;
  } else if (rope.type != "default" && rope.type != "mrope") {
    throw checkpoint_error(fmt::format("{}: rope type: expected default, mrope, linear, llama3, yarn or dynamic, "
                                       "found \"{}\"",
                                       config.where(), rope.type),
                           "this way of stretching positions is not built; a model computed without it would be wrong");
  }
  made.sections = rope.values.integers("mrope_section");
  if (made.grows && !made.sections.empty()) {
    throw checkpoint_error(
        fmt::format("{}: mrope_section: expected none beside rope type dynamic", rope.values.where()),
        "positions of media may go beyond a row's tokens, where that rope has no one result");
  }
  if (rope.values.flag("mrope_interleaved", false)) {
    throw checkpoint_error(fmt::format("{}: mrope_interleaved: expected false, found true", rope.values.where()),
                           "sections whose axes change from frequency to frequency are not built");
  }
  return made;
}

}  // namespace lockstep
