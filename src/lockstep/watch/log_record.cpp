#include "lockstep/watch/log_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json_fields.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

constexpr const char* kStepKey = "global_step/max_steps";
const std::string kRateOf = "learning_rate_";  // a component's name follows

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

std::optional<std::pair<int64_t, int64_t>> step_of(const Json& record) {
  if (!record.is_object()) return std::nullopt;
  const auto it = record.find(kStepKey);
  if (it == record.end() || !it->is_string()) return std::nullopt;
  const auto text = it->get<std::string>();
  char* rest = nullptr;
  const int64_t step = std::strtoll(text.c_str(), &rest, 10);
  return std::pair{step, *rest == '/' ? std::strtoll(rest + 1, nullptr, 10) : 0};
}

/// Numbers are shortened when they are written.
void shortened(JsonFields& f, const char* key, double& value) {
  if (f.writing()) value = nine_digits(value);
  f(key, value);
}

void shortened(JsonFields& f, const char* key, double& value, int digits) {
  if (f.writing()) value = rounded(value, digits);
  f(key, value);
}

/// A fraction, -1 where it was not measured.
void measured(JsonFields& f, const char* key, double& value) {
  if (f.writing() ? value >= 0 : f.has(key)) shortened(f, key, value);
}

}  // namespace

std::string swift_duration(double seconds) {
  const auto whole = std::isfinite(seconds) ? std::max<int64_t>(0, static_cast<int64_t>(seconds)) : 0;
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  std::string out;
  if (days > 0) out += fmt::format("{}d ", days);
  if (whole >= 3600) out += fmt::format("{}h ", hours);
  if (whole >= 60) out += fmt::format("{}m ", minutes);
  return out + fmt::format("{}s", whole % 60);
}

double nine_digits(double value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr) : value;
}

static void describe(StepDone& s, JsonFields& f) {
  const bool has_peaks = !s.peak_bytes.empty();
  shortened(f, "loss", s.loss);
  shortened(f, "grad_norm", s.grad_norm);
  shortened(f, "learning_rate", s.learning_rate);
  for (auto& [name, rate] : s.component_rates) shortened(f, (kRateOf + name).c_str(), rate);
  measured(f, "token_acc", s.token_accuracy);
  measured(f, "talker_loss", s.talker_loss);
  shortened(f, "epoch", s.epoch);
  f.derived(kStepKey, fmt::format("{}/{}", s.step, s.max_steps));
  f.derived("elapsed_time", swift_duration(s.elapsed_seconds));
  f.derived("remaining_time", swift_duration(s.remaining_seconds));
  if (has_peaks) f.derived("memory(GiB)", rounded(static_cast<double>(std::ranges::max(s.peak_bytes)) / (1 << 30), 2));
  shortened(f, "train_speed(s/it)", s.seconds_per_step, 6);
  f.derived("cpu_seconds_per_step", rounded(s.cpu_seconds_per_step, 6));
  shortened(f, "tokens_per_second", s.tokens_per_second, 2);
  shortened(f, "elapsed_seconds", s.elapsed_seconds, 3);
  shortened(f, "remaining_seconds", s.remaining_seconds, 3);
  f.optional("peak_bytes", s.peak_bytes, has_peaks);
  f.optional("predicted_bytes", s.predicted_bytes, !s.predicted_bytes.empty());
  f("tokens_seen", s.tokens_seen);
  f.optional("tokens_computed", s.tokens_computed, s.tokens_computed > 0);
  f("samples_seen", s.samples_seen);
  f.optional("skipped_rows", s.skipped_rows, s.skipped_rows > 0);
  f.optional("loss_scale", s.loss_scale, s.loss_scale > 0);
  shortened(f, "gather_wait_seconds", s.gather_wait_seconds, 6);
  shortened(f, "reduce_wait_seconds", s.reduce_wait_seconds, 6);
  f("gather_bytes", s.gather_bytes);
  f("reduce_bytes", s.reduce_bytes);
}

static void describe(EvalDone& eval, JsonFields& f) {
  const double seconds = eval.seconds;
  shortened(f, "eval_loss", eval.loss);
  measured(f, "eval_token_acc", eval.token_accuracy);
  measured(f, "eval_talker_loss", eval.talker_loss);
  measured(f, "eval_exact_match", eval.exact_match);
  for (auto& [name, value] : eval.metrics) shortened(f, ("eval_" + name).c_str(), value);
  shortened(f, "eval_runtime", eval.seconds, 4);
  if (seconds > 0) {
    f.derived("eval_samples_per_second", rounded(static_cast<double>(eval.num_samples) / seconds, 3));
  }
  f("eval_samples", eval.num_samples);
  for (auto& [name, share] : eval.groups) share = nine_digits(share);
  f.optional("eval_groups", eval.groups, !eval.groups.empty());
  shortened(f, "epoch", eval.epoch);
}

Json to_record(const StepDone& step) { return json_of(step); }

Json to_record(const EvalDone& eval, int64_t max_steps) {
  Json out = json_of(eval);
  out[kStepKey] = fmt::format("{}/{}", eval.step, max_steps);
  return out;
}

std::optional<StepDone> read_step_record(const Json& record) {
  const auto at = step_of(record);
  if (!at || !record.contains("loss")) return std::nullopt;
  auto out = record_of<StepDone>(record, JsonReading::kLenient);
  std::tie(out.step, out.max_steps) = *at;
  for (const auto& [key, value] : record.items()) {
    if (key.starts_with(kRateOf)) out.component_rates.emplace_back(key.substr(kRateOf.size()), value.get<double>());
  }
  return out;
}

std::optional<EvalDone> read_eval_record(const Json& record) {
  const auto at = step_of(record);
  if (!at || !record.contains("eval_loss")) return std::nullopt;
  auto out = record_of<EvalDone>(record, JsonReading::kLenient);
  out.step = at->first;
  const Json known =
      json_of(EvalDone{.token_accuracy = 0, .exact_match = 0, .seconds = 1, .talker_loss = 0});  // all but metrics
  for (const auto& [key, value] : record.items()) {
    if (!key.starts_with("eval_") || known.contains(key) || !value.is_number()) continue;
    out.metrics.emplace_back(key.substr(5), value.get<double>());
  }
  return out;
}

std::vector<Json> read_records(const std::filesystem::path& path, int64_t last_step) {
  std::vector<Json> out;
  if (!std::filesystem::is_regular_file(path)) return out;
  for (const std::string& line : split(read_text(path), '\n')) {
    auto record = parse_json_or_discard(line);
    const auto at = step_of(record);
    if (!at || at->first > last_step) continue;
    const bool kept = std::ranges::any_of(std::array{"loss", "eval_loss", kMemoryRecordKey},
                                          [&](const char* key) { return record.contains(key); });
    if (!kept) continue;
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace lockstep
