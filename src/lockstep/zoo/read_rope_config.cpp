#include <cmath>
#include <numbers>

#include <fmt/format.h>

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

Spelling spelling_of(const HfConfig& config, double usual_theta) {
  const double theta = config.positive("rope_theta", usual_theta);
  if (config.has("rope_parameters")) {
    const HfConfig values = config.at("rope_parameters");
    return {values, values.text("rope_type", values.text("type", "default")), values.positive("rope_theta", theta)};
  }
  const HfConfig values = config.at("rope_scaling");
  return {values, values.text("rope_type", values.text("type", "default")), theta};
}

/// Low frequencies are stretched, high ones kept, those between blended.
void scale_as_llama3(std::vector<float>& frequencies, const HfConfig& values, int64_t max_positions) {
  const double factor = values.positive("factor", 8.0);
  const double low = values.positive("low_freq_factor", 1.0), high = values.positive("high_freq_factor", 4.0);
  if (high <= low) {
    throw checkpoint_error(fmt::format("{}: high_freq_factor: expected more than low_freq_factor {}, found {}",
                                       values.where(), low, high));
  }
  const auto old =
      static_cast<double>(values.size("original_max_position_embeddings", max_positions, {.most = kMaxPositions}));
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
    const auto factor = static_cast<float>(rope.values.positive("factor", 1.0));
    for (float& frequency : made.inverse_frequencies) frequency /= factor;
  } else if (rope.type == "llama3") {
    scale_as_llama3(made.inverse_frequencies, rope.values, max_positions);
  } else if (rope.type != "default" && rope.type != "mrope") {
    throw checkpoint_error(fmt::format("{}: rope type: expected default, mrope, linear or llama3, found \"{}\"",
                                       config.where(), rope.type),
                           "this way of stretching positions is not built; a model computed without it would be wrong");
  }
  made.sections = rope.values.integers("mrope_section");
  if (rope.values.flag("mrope_interleaved", false)) {
    throw checkpoint_error(fmt::format("{}: mrope_interleaved: expected false, found true", rope.values.where()),
                           "sections whose axes change from frequency to frequency are not built");
  }
  return made;
}

}  // namespace lockstep
