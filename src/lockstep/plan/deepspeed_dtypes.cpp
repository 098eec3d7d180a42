#include "lockstep/plan/deepspeed_dtypes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> kSections = {"bf16", "bfloat16", "fp16", "torch_autocast"};
constexpr std::array<std::string_view, 8> kUsed = {
    "enabled",           "dtype",      "loss_scale",     "initial_scale_power",
    "loss_scale_window", "hysteresis", "min_loss_scale", "consecutive_hysteresis"};

/// The dtype in which torch_autocast computes. Not said, it is the device's own: float16 on GPUs, bfloat16 on CPUs.
std::string autocast_dtype(const Json& section, const std::string& where) {
  std::string word = section.contains("dtype") ? section["dtype"].dump() : "none";
  std::erase(word, '"');
  if (word.starts_with("torch.")) word = word.substr(6);
  if (word == "bfloat16" || word == "bf16") return "bfloat16";
  if (word == "float16" || word == "fp16" || word == "half") return "float16";
  throw usage_error(
      fmt::format("{}: torch_autocast.dtype: expected \"bfloat16\" or \"float16\", found {}", where, word),
      "say which, or leave torch_autocast out: --torch_dtype bfloat16");
}

class ScalingReader {
 public:
  ScalingReader(const Json& section, const std::string& where) : section_(section), where_(where) {}

  LossScaling read() const {
    constexpr double kMost = 0x1p64;
    LossScaling out;
    out.fixed = number("loss_scale", out.fixed, 0, kMost);
    out.initial = std::exp2(whole("initial_scale_power", 16, 0, 64));
    out.window = whole("loss_scale_window", out.window, 1, 1'000'000'000);
    out.hysteresis = whole("hysteresis", out.hysteresis, 1, 1'000'000'000);
    out.least = number("min_loss_scale", out.least, 0x1p-64, kMost);
    const Json refills = section_.value("consecutive_hysteresis", Json(false));
    if (!refills.is_boolean()) throw wrong("consecutive_hysteresis", "true or false", refills);
    out.refills = refills.get<bool>();
    return out;
  }

 private:
  UserError wrong(const char* name, const std::string& expected, const Json& found) const {
    return usage_error(
        fmt::format("{}: fp16.{}: expected {}, found {}", where_, name, expected, cut_text(found.dump())),
        "leave it out, for DeepSpeed's own");
  }

  double number(const char* name, double otherwise, double least, double most) const {
    const Json value = section_.value(name, Json());
    if (value.is_null() || value == Json("auto")) return otherwise;
    const double found = value.is_number() ? value.get<double>() : std::nan("");
    if (!(found >= least && found <= most))
      throw wrong(name, fmt::format("a number from {:g} to {:g}", least, most), value);
    return found;
  }

  int64_t whole(const char* name, int64_t otherwise, int64_t least, int64_t most) const {
    const double found =
        number(name, static_cast<double>(otherwise), static_cast<double>(least), static_cast<double>(most));
    if (found != std::floor(found)) throw wrong(name, "a whole number", section_.at(name));
    return static_cast<int64_t>(found);
  }

  const Json& section_;
  const std::string& where_;
};

}  // namespace

bool is_dtype_section(const std::string& key) { return std::ranges::find(kSections, key) != kSections.end(); }

void read_dtype_section(const std::string& key, const Json& value, const std::string& where, DeepSpeedChoice& out) {
  const Json section = value.is_object() ? value : Json{{"enabled", value}};
  const bool off = section.value("enabled", Json()) == Json(false);
  if (key == "fp16" && !off) out.loss_scaling = ScalingReader(section, where).read();
  for (const auto& [name, one] : section.items()) {
    const bool asks = !one.is_null() && one != Json(false) && one != Json("auto");
    if (asks && std::ranges::find(kUsed, name) == kUsed.end()) out.ignored.push_back(key + "." + name);
  }
  if (section.value("enabled", Json(false)) != Json(true)) return;
  const std::string dtype = key == "torch_autocast" ? autocast_dtype(section, where)
                            : key == "fp16"         ? "float16"
                                                    : "bfloat16";
  out.says.push_back({key + ".enabled", "--torch_dtype", dtype});
}

}  // namespace lockstep
