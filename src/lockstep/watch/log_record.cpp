#include "lockstep/watch/log_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

// A number that is not finite was written as null.
double number(const Json& record, const char* key, double missing) {
  const auto it = record.find(key);
  if (it == record.end()) return missing;
  return it->is_number() ? it->get<double>() : std::nan("");
}

int64_t integer(const Json& record, const char* key) {
  const auto it = record.find(key);
  return it != record.end() && it->is_number() ? it->get<int64_t>() : 0;
}

std::vector<int64_t> integers(const Json& record, const char* key) {
  std::vector<int64_t> out;
  if (const auto it = record.find(key); it != record.end() && it->is_array()) {
    for (const auto& item : *it) out.push_back(item.is_number() ? item.get<int64_t>() : 0);
  }
  return out;
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

Json to_record(const StepDone& step) {
  Json out;
  out["loss"] = nine_digits(step.loss);
  out["grad_norm"] = nine_digits(step.grad_norm);
  out["learning_rate"] = nine_digits(step.learning_rate);
  for (const auto& [name, rate] : step.component_rates) out[kRateOf + name] = nine_digits(rate);
  if (step.token_accuracy >= 0) out["token_acc"] = nine_digits(step.token_accuracy);
  out["epoch"] = nine_digits(step.epoch);
  out[kStepKey] = fmt::format("{}/{}", step.step, step.max_steps);
  out["elapsed_time"] = swift_duration(step.elapsed_seconds);
  out["remaining_time"] = swift_duration(step.remaining_seconds);
  if (!step.peak_bytes.empty()) {
    const auto peak = *std::max_element(step.peak_bytes.begin(), step.peak_bytes.end());
    out["memory(GiB)"] = rounded(static_cast<double>(peak) / (1 << 30), 2);
  }
  out["train_speed(s/it)"] = rounded(step.seconds_per_step, 6);
  out["cpu_seconds_per_step"] = rounded(step.cpu_seconds_per_step, 6);
  out["tokens_per_second"] = rounded(step.tokens_per_second, 2);
  out["elapsed_seconds"] = rounded(step.elapsed_seconds, 3);
  out["remaining_seconds"] = rounded(step.remaining_seconds, 3);
  if (!step.peak_bytes.empty()) out["peak_bytes"] = step.peak_bytes;
  if (!step.predicted_bytes.empty()) out["predicted_bytes"] = step.predicted_bytes;
  out["tokens_seen"] = step.tokens_seen;
  out["samples_seen"] = step.samples_seen;
  if (step.skipped_rows > 0) out["skipped_rows"] = step.skipped_rows;
  if (step.loss_scale > 0) out["loss_scale"] = step.loss_scale;
  out["gather_wait_seconds"] = rounded(step.gather_wait_seconds, 6);
  out["reduce_wait_seconds"] = rounded(step.reduce_wait_seconds, 6);
  out["gather_bytes"] = step.gather_bytes;
  out["reduce_bytes"] = step.reduce_bytes;
  return out;
}

Json to_record(const EvalDone& eval, double epoch, int64_t max_steps) {
  Json out;
  out["eval_loss"] = nine_digits(eval.loss);
  if (eval.token_accuracy >= 0) out["eval_token_acc"] = nine_digits(eval.token_accuracy);
  if (eval.exact_match >= 0) out["eval_exact_match"] = nine_digits(eval.exact_match);
  for (const auto& [name, value] : eval.metrics) out["eval_" + name] = nine_digits(value);
  out["eval_runtime"] = rounded(eval.seconds, 4);
  if (eval.seconds > 0) {
    out["eval_samples_per_second"] = rounded(static_cast<double>(eval.num_samples) / eval.seconds, 3);
  }
  out["eval_samples"] = eval.num_samples;
  for (const auto& [name, share] : eval.groups) out["eval_groups"][name] = nine_digits(share);
  out["epoch"] = nine_digits(epoch);
  out[kStepKey] = fmt::format("{}/{}", eval.step, max_steps);
  return out;
}

std::optional<StepDone> read_step_record(const Json& record) {
  const auto at = step_of(record);
  if (!at || !record.contains("loss")) return std::nullopt;
  StepDone out;
  std::tie(out.step, out.max_steps) = *at;
  out.loss = number(record, "loss", 0);
  out.grad_norm = number(record, "grad_norm", 0);
  out.learning_rate = number(record, "learning_rate", 0);
  for (const auto& [key, value] : record.items()) {
    if (key.starts_with(kRateOf)) out.component_rates.emplace_back(key.substr(kRateOf.size()), value.get<double>());
  }
  out.token_accuracy = number(record, "token_acc", -1);
  out.epoch = number(record, "epoch", 0);
  out.seconds_per_step = number(record, "train_speed(s/it)", 0);
  out.tokens_per_second = number(record, "tokens_per_second", 0);
  out.elapsed_seconds = number(record, "elapsed_seconds", 0);
  out.remaining_seconds = number(record, "remaining_seconds", 0);
  out.loss_scale = number(record, "loss_scale", 0);
  out.gather_wait_seconds = number(record, "gather_wait_seconds", 0);
  out.reduce_wait_seconds = number(record, "reduce_wait_seconds", 0);
  out.peak_bytes = integers(record, "peak_bytes");
  out.predicted_bytes = integers(record, "predicted_bytes");
  out.tokens_seen = integer(record, "tokens_seen");
  out.samples_seen = integer(record, "samples_seen");
  out.skipped_rows = integer(record, "skipped_rows");
  out.gather_bytes = integer(record, "gather_bytes");
  out.reduce_bytes = integer(record, "reduce_bytes");
  return out;
}

std::optional<EvalDone> read_eval_record(const Json& record) {
  const auto at = step_of(record);
  if (!at || !record.contains("eval_loss")) return std::nullopt;
  EvalDone out;
  out.step = at->first;
  out.num_samples = integer(record, "eval_samples");
  out.loss = number(record, "eval_loss", 0);
  out.token_accuracy = number(record, "eval_token_acc", -1);
  out.exact_match = number(record, "eval_exact_match", -1);
  out.seconds = number(record, "eval_runtime", 0);
  if (const auto groups = record.find("eval_groups"); groups != record.end() && groups->is_object()) {
    for (const auto& [name, share] : groups->items()) {
      if (share.is_number()) out.groups.emplace_back(name, share.get<double>());
    }
  }
  const std::set<std::string> known = {"eval_loss",    "eval_token_acc",          "eval_exact_match",
                                       "eval_runtime", "eval_samples_per_second", "eval_samples"};
  for (const auto& item : record.items()) {
    const std::string& key = item.key();
    if (!key.starts_with("eval_") || known.contains(key) || !item.value().is_number()) continue;
    out.metrics.emplace_back(key.substr(5), item.value().get<double>());
  }
  return out;
}

std::vector<Json> read_records(const std::filesystem::path& path, int64_t last_step) {
  std::vector<Json> out;
  if (!std::filesystem::is_regular_file(path)) return out;
  for (const std::string& line : split(read_text(path), '\n')) {
    auto record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
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
