#include "lockstep/watch/report_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/html.h"
#include "lockstep/watch/report_charts.h"
#include "lockstep/watch/report_communication.h"
#include "lockstep/watch/report_memory.h"
#include "lockstep/watch/report_style.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxImageBytes = 300'000;
constexpr size_t kMaxSamples = 60;

std::string percent(double share) { return fmt::format("{:.1f}%", share * 100); }

std::string as_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json lenient(const std::string& text) { return parse_json_or_discard(text); }

// "done" is good, a person's interruption a warning, anything else an error whose text stands in a banner.
std::string outcome_class(const RunHistory& history) {
  if (!history.end) return "warn";
  if (history.end->exit_code == 0) return "good";
  return history.end->outcome == "interrupted" ? "warn" : "bad";
}

std::string outcome_word(const RunHistory& history) {
  if (!history.end) return "running";
  if (history.end->exit_code == 0) return history.end->outcome;
  return history.end->outcome == "interrupted" ? "interrupted"
                                               : fmt::format("failed, exit code {}", history.end->exit_code);
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<span>{} <b>{}</b></span>", name, escape_html(value));
}

/// Of a run that went on: what begins anew with each start.
std::string since(const RunStarted& run) {
  return run.start_step > 0 ? fmt::format(" since step {}", run.start_step) : "";
}

/// What it runs with, also where no flag says it.
std::string settings(const RunStarted& run) {
  const Json args = lenient(run.args_json), plan = lenient(run.plan_json);
  const Json planned = plan.is_object() ? plan.value("options", Json()) : Json();
  const auto shown = [](const Json& from, const char* key, const char* label, const char* before = "") {
    const bool there = from.is_object() && from.contains(key) && !from[key].is_null();
    return there ? fact(label, before + as_text(from[key])) : std::string();
  };
  const std::string zero = shown(planned, "zero", "ZeRO", "zero"), dtype = shown(planned, "compute", "dtype");
  return (zero.empty() ? shown(args, "deepspeed", "ZeRO") : zero) +
         (dtype.empty() ? shown(args, "torch_dtype", "dtype") : dtype) + shown(args, "seed", "seed");
}

std::string header(const RunHistory& history) {
  const RunStarted& run = history.start;
  std::string out = fmt::format(R"(<div class="top"><h1>{} {}</h1><span class="chip {}">{}</span></div>)",
                                escape_html(run.model_family), escape_html(run.verb), outcome_class(history),
                                escape_html(outcome_word(history)));
  std::string trained;
  if (run.num_trainable_params > 0 && run.num_trainable_params != run.num_params) {
    trained = format_count(run.num_trainable_params);
  }
  out += R"(<p class="facts">)" + fact("parameters", format_count(run.num_params)) + fact("trained", trained);
  out += fact("ranks", std::to_string(run.world_size));
  out += settings(run);
  if (history.end) out += fact("duration" + since(run), format_duration(history.end->seconds));
  out += fact("folder", run.output_dir) + "</p>\n";
  if (!history.end || history.end->exit_code == 0) return out;
  out += fmt::format(R"(<div class="banner {}"><b>{}</b> at step {})", outcome_class(history),
                     history.end->outcome == "interrupted" ? "Interrupted" : "The run failed", history.end->step);
  if (history.end->outcome != "interrupted") out += "<pre>" + escape_html(history.end->outcome) + "</pre>";
  return out + "</div>\n";
}

std::string tile(const std::string& label, const std::string& value, const std::string& detail = {}) {
  return fmt::format(R"(<div class="tile"><span>{}</span><b>{}</b><small>{}</small></div>)", label, escape_html(value),
                     escape_html(detail));
}

std::string tiles(const RunHistory& history) {
  std::string out;
  if (!history.steps.empty()) {
    const StepDone& last = history.steps.back();
    std::vector<double> speeds;
    int64_t peak = 0, predicted = 0;
    for (const auto& step : history.steps) {
      speeds.push_back(step.tokens_per_second);
      for (const int64_t bytes : step.peak_bytes) peak = std::max(peak, bytes);
      for (const int64_t bytes : step.predicted_bytes) predicted = std::max(predicted, bytes);
    }
    std::nth_element(speeds.begin(), speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2), speeds.end());
    const int64_t reached = std::max(last.step, history.end ? history.end->step : 0);  // logged now and then
    out += tile("Steps", fmt::format("{}", reached), fmt::format("of {}, epoch {:.2f}", last.max_steps, last.epoch));
    out += tile("Training loss", fmt::format("{:.4f}", smoothed_loss(history).back()),
                fmt::format("from {:.4f}, smoothed", history.steps.front().loss));
    out += tile("Speed", format_count(static_cast<int64_t>(speeds[speeds.size() / 2])), "tokens/s, median");
    if (peak > 0) {
      out += tile("Peak memory", format_bytes(peak),
                  predicted > 0 ? "predicted " + format_bytes(predicted) : "highest rank");
    }
    if (!history.end) out += tile("Time left", format_duration(last.remaining_seconds));
  }
  if (!history.evals.empty()) {
    const EvalDone& last = history.evals.back();
    double best = last.loss;
    for (const auto& eval : history.evals) best = std::min(best, eval.loss);
    const std::string rows = fmt::format("step {}, {} rows", last.step, last.num_samples);
    out += tile("Evaluation loss", fmt::format("{:.4f}", last.loss), fmt::format("best {:.4f}", best));
    if (last.exact_match >= 0) out += tile("Exact answers", percent(last.exact_match), rows);
    if (last.token_accuracy >= 0) out += tile("Token accuracy", percent(last.token_accuracy), rows);
    for (const auto& [name, value] : last.metrics) out += tile(escape_html(name), fmt::format("{:.4g}", value), rows);
  }
  return out.empty() ? "" : R"(<div class="tiles">)" + out + "</div>\n";
}

/// Before anything was measured, and of a run that keeps no record: what the plan says.
std::string memory(const RunHistory& history) {
  if (history.memory) return memory_section(*history.memory);
  const Json plan = lenient(history.start.plan_json);
  return plan.is_object() && plan.contains("memory") ? report_memory_html(plan["memory"], Json()) : "";
}

std::string groups(const RunHistory& history) {
  if (history.evals.empty() || history.evals.back().groups.empty()) return {};
  std::string out =
      "<h2>Exact answers by kind of question</h2>\n"
      R"(<div class="card"><table class="bars">)";
  for (const auto& [name, share] : history.evals.back().groups) {
    out +=
        fmt::format(R"(<tr><td>{}</td><td><div class="track"><div class="fill" style="width:{:.1f}%"></div></div></td>)"
                    R"(<td class="num">{}</td></tr>)",
                    escape_html(name), std::clamp(share, 0.0, 1.0) * 100, percent(share));
  }
  return out + "</table></div>\n";
}

std::string samples(const RunHistory& history) {
  const auto shown = std::find_if(history.evals.rbegin(), history.evals.rend(),
                                  [](const EvalDone& eval) { return !eval.samples.empty(); });
  if (shown == history.evals.rend()) return {};
  std::string out = fmt::format(
      R"(<h2>Answers at step {}</h2><div class="card"><table><tr><th>Image</th><th>Question</th><th>Expected</th>)"
      R"(<th>Answer</th><th></th></tr>)",
      shown->step);
  for (size_t i = 0; i < std::min(shown->samples.size(), kMaxSamples); ++i) {
    const SamplePrediction& sample = shown->samples[i];
    const std::string uri = image_data_uri(sample.image_path, kMaxImageBytes);
    out += "<tr><td>" + (uri.empty() ? std::string() : fmt::format(R"(<img alt="" src="{}">)", uri)) + "</td>";
    for (const auto& text : {sample.prompt, sample.expected, sample.predicted}) {
      out += R"(<td class="text">)" + escape_html(text) + "</td>";
    }
    out += fmt::format(R"(<td class="mark {}">{}</td></tr>)", sample.exact ? "good" : "bad",
                       sample.exact ? "✓ exact" : "✗ differs");
  }
  return out + "</table></div>\n";
}

std::string table_of(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) {
    out +=
        fmt::format(R"(<tr><td>{}</td><td class="text">{}</td></tr>)", escape_html(key), escape_html(as_text(value)));
  }
  return R"(<div class="card"><table class="args">)" + out + "</table></div>";
}

std::string details(const RunHistory& history) {
  std::string out;
  if (!history.notices.empty()) {
    out += "<h2>Notices</h2><ul>";
    for (const auto& notice : history.notices) out += "<li>" + escape_html(notice) + "</li>";
    out += "</ul>";
  }
  if (!history.checkpoints.empty()) {
    out += "<h2>Checkpoints" + since(history.start) + "</h2>";
    out += R"(<div class="card"><table><tr><th class="num">Step</th><th>Folder</th>)"
           R"(<th class="num">Size</th><th class="num">Time</th></tr>)";
    for (const auto& saved : history.checkpoints) {
      out += fmt::format(
          R"(<tr><td class="num">{}</td><td class="text">{}</td><td class="num">{}</td><td class="num">{}</td></tr>)",
          saved.step, escape_html(saved.path), format_bytes(saved.bytes), format_duration(saved.seconds));
    }
    out += "</table></div>";
  }
  if (history.end && !history.end->next_command.empty()) {
    out += R"(<h2>Next</h2><div class="card"><pre>)" + escape_html(history.end->next_command) + "</pre></div>";
  }
  if (!history.start.plan_text.empty()) {
    out += R"(<details><summary>Plan</summary><div class="card"><pre class="plan">)" +
           escape_html(history.start.plan_text) + "</pre></div></details>";
  }
  const Json args = lenient(history.start.args_json);
  if (args.is_object() && !args.empty()) out += "<details><summary>Arguments</summary>" + table_of(args) + "</details>";
  return out;
}

}  // namespace

std::string render_report(const RunHistory& history) {
  std::string charts;
  for (const Chart& chart : report_charts(history)) charts += render_chart(chart);
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>";
  out += escape_html(history.start.model_family + " " + history.start.verb + ": " + outcome_word(history));
  out += "</title><style>" + std::string(kReportStyle) + "</style></head><body><main>\n";
  out += header(history) + tiles(history);
  if (!charts.empty()) out += "<h2>Curves</h2>\n<div class=\"charts\">" + charts + "</div>\n";
  out += groups(history) + samples(history) + memory(history);
  if (history.end) out += communication_section(history.end->communication);
  out += details(history);
  out += "<footer>Written by Lockstep. The curves' numbers stand in logging.jsonl.</footer></main><script>";
  return out + std::string(kReportScript) + "</script></body></html>\n";
}

}  // namespace lockstep
