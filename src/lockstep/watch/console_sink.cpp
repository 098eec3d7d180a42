#include "lockstep/watch/console_sink.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/env.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kDim = "\x1b[2m", kRed = "\x1b[31m", kGreen = "\x1b[32m",
                           kYellow = "\x1b[33m", kReset = "\x1b[0m", kEraseLine = "\r\x1b[K";
constexpr int kBarCells = 10;

// Texts from data and errors may carry control characters; they must not reach a terminal or a log.
std::string printable(std::string_view text) {
  std::string out(text);
  const auto byte = [&](size_t i) { return i < out.size() ? static_cast<unsigned char>(out[i]) : 0U; };
  for (size_t i = 0; i < out.size(); ++i) {
    const bool two = byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0;  // U+009B begins what "\x1b[" does
    if (two || (byte(i) < 0x20 && out[i] != '\n') || byte(i) == 0x7F) out.replace(i, two ? size_t{2} : size_t{1}, " ");
  }
  return out;
}

std::string bar(double share) {
  const auto full = std::clamp(static_cast<int>(share * kBarCells), 0, kBarCells);
  return fmt::format("[{}{}]", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(kBarCells - full), '.'));
}

double share_of(int64_t done, int64_t total) {
  return total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// All ranks while they fit the eye, else the extremes.
std::string gib_list(const std::vector<int64_t>& ranks) {
  const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end());
  if (ranks.size() > 4) return fmt::format("{:.2f}-{:.2f}", gib(*low), gib(*high));
  std::string out;
  for (const int64_t bytes : ranks) out += fmt::format("{}{:.2f}", out.empty() ? "" : "/", gib(bytes));
  return out;
}

std::string memory(const StepDone& step) {
  if (step.peak_bytes.empty()) return {};
  std::string out = fmt::format("  mem {} GiB", gib_list(step.peak_bytes));
  if (!step.predicted_bytes.empty()) out += fmt::format(" (plan {})", gib_list(step.predicted_bytes));
  return out;
}

}  // namespace

ConsoleOptions console_options(const Env& env, int fd, bool quiet) {
  const bool dumb = env.text("TERM").value_or("dumb") == "dumb";  // it would show what erases a line
  ConsoleOptions out{.tty = isatty(fd) == 1 && !dumb, .quiet = quiet};
  winsize size{};
  if (out.tty && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) out.width = size.ws_col;
  const auto no_color = env.text("NO_COLOR");  // any value but the empty one counts (no-color.org)
  out.color = out.tty && !no_color;
  return out;
}

ConsoleSink::ConsoleSink(std::ostream& out, ConsoleOptions options) : out_(out), options_(std::move(options)) {
  if (!options_.now) options_.now = [start = Clock::now()] { return seconds_since(start); };
}

void ConsoleSink::on(const Event& event) {
  std::visit([this](const auto& value) { show(value); }, event);
  out_.flush();
}

void ConsoleSink::show(const RunStarted& run) {
  if (options_.quiet) return;
  std::string text = fmt::format("{} {}  {} params", run.verb, run.model_family, format_count(run.num_params));
  if (run.num_trainable_params > 0 && run.num_trainable_params != run.num_params) {
    text += fmt::format(" ({} trained)", format_count(run.num_trainable_params));
  }
  text += fmt::format("  {} rank{}", run.world_size, run.world_size == 1 ? "" : "s");
  if (run.start_step > 0) text += fmt::format("  resumes after step {}", run.start_step);
  if (run.max_steps > 0) text += fmt::format("  {} steps", run.max_steps);
  if (!run.output_dir.empty()) text += "  -> " + run.output_dir;
  line(text, kBold);
}

namespace {

/// What there is none of, where every step was left out, is no number.
std::string number_or_dash(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace

void ConsoleSink::show(const StepDone& step) {
  if (options_.quiet) return;
  const double share = share_of(step.step, step.max_steps);
  const auto digits = std::to_string(step.max_steps).size();
  std::string rest = fmt::format("  loss {}  grad_norm {}  lr {:.2e}", number_or_dash(step.loss, 4),
                                 number_or_dash(step.grad_norm, 3), step.learning_rate);
  for (const auto& [name, rate] : step.component_rates) rest += fmt::format(" {} {:.2e}", name, rate);
  if (step.token_accuracy >= 0) rest += fmt::format("  token_acc {:.1f}%", step.token_accuracy * 100);
  if (step.talker_loss >= 0) rest += fmt::format("  talker_loss {:.4f}", step.talker_loss);
  rest += fmt::format("  {} tok/s", format_count(static_cast<int64_t>(step.tokens_per_second)));
  rest += memory(step);
  rest += fmt::format("  left {}  {:.3g} s/it", format_duration(step.remaining_seconds), step.seconds_per_step);
  if (step.loss_scale > 0) rest += fmt::format("  scale {:g}", step.loss_scale);
  if (step.skipped_rows > 0) rest += fmt::format("  skipped {} rows", step.skipped_rows);
  const std::string head =
      fmt::format("step {:>{}}/{} {:3d}%", step.step, digits, step.max_steps, static_cast<int>(share * 100));
  const std::string cells = " " + bar(share);
  const bool fits = head.size() + cells.size() + rest.size() <= static_cast<size_t>(options_.width);
  line(head + (options_.tty && fits ? cells : "") + rest);
}

void ConsoleSink::show(const MemoryMeasured& memory) {
  if (!memory.last) return;
  for (const auto& text : memory_summary(memory)) line(text);
}

void ConsoleSink::show(const EvalDone& eval) {
  std::string text = fmt::format("eval at step {}: loss {:.4f}", eval.step, eval.loss);
  if (eval.token_accuracy >= 0) text += fmt::format("  token_acc {:.1f}%", eval.token_accuracy * 100);
  if (eval.talker_loss >= 0) text += fmt::format("  talker_loss {:.4f}", eval.talker_loss);
  if (eval.exact_match >= 0) text += fmt::format("  exact {:.1f}%", eval.exact_match * 100);
  for (const auto& [name, value] : eval.metrics) text += fmt::format("  {} {:.4g}", name, value);
  text += fmt::format("  ({} rows in {})", eval.num_samples, format_duration(eval.seconds));
  line(text, kBold);
  if (eval.groups.empty()) return;
  std::string groups;
  for (const auto& [name, share] : eval.groups) groups += fmt::format("  {} {:.1f}%", name, share * 100);
  line(groups);
}

void ConsoleSink::show(const CheckpointSaved& saved) {
  if (options_.quiet) return;
  line(fmt::format("saved {}  ({} in {})", saved.path, format_bytes(saved.bytes), format_duration(saved.seconds)),
       kDim);
}

void ConsoleSink::show(const Notice& notice) { line("note: " + notice.text, kYellow); }

void ConsoleSink::show(const Progress& progress) {
  if (options_.quiet) return;
  const double now = options_.now();
  const bool begins = progress.phase != phase_;
  const bool closes = progress.total > 0 && progress.done >= progress.total;
  const double share = share_of(progress.done, progress.total);
  const auto tenth = static_cast<int64_t>(share * 10);
  if (begins) {
    phase_ = progress.phase;
    phase_start_ = now;
    tenth_ = 0;
    if (!options_.tty) last_progress_ = now;  // a short phase shows only its end
  }
  const double pause = options_.tty ? 0.1 : 2.0;
  if (!closes && now - last_progress_ < pause && !(begins && options_.tty)) return;
  if (!closes && !options_.tty && progress.total > 0 && tenth == tenth_) return;
  tenth_ = tenth;
  last_progress_ = now;
  std::string text = printable(progress.phase);
  if (progress.total > 0) {
    text += fmt::format("  {:3d}%  {}/{}", static_cast<int>(share * 100), progress.done, progress.total);
    if (options_.tty && !closes) text += " " + bar(share);
  } else {
    text += fmt::format("  {}", progress.done);
  }
  if (closes) {
    text += "  " + format_duration(now - phase_start_);
    phase_.clear();
  }
  options_.tty ? redraw(text, closes) : line(text);
}

void ConsoleSink::show(const BatchSized& batch) {
  for (const auto& one : batch.tries) {
    const std::string need = one.bytes > 0 ? fmt::format("{:.2f} GiB", gib(one.bytes)) : "out of memory";
    line(fmt::format("batch size {:>5}: {} at the peak{}", one.rows, need, one.fits ? "" : ", too much"));
  }
  line(fmt::format("batch size {} on a rank ({:.2f} GiB may be used: --memory_fraction {})", batch.rows,
                   gib(batch.limit_bytes), batch.memory_fraction));
}

void ConsoleSink::show(const RowsKept& rows) {
  line(fmt::format("going on: {} of {} rows are {}", rows.kept, rows.total, rows.how));
}

void ConsoleSink::show(const RunEnded& run) {
  for (const auto& text : communication_table(run.communication)) line(text);
  const bool done = run.exit_code == 0;
  std::string text = run.outcome;
  if (!done) text = fmt::format("{} (exit code {})", run.outcome, run.exit_code);
  text += fmt::format("  after {}", format_duration(run.seconds));
  if (run.step > 0) text += fmt::format(", {} steps", run.step);
  if (run.step > 0 && done) text += fmt::format(", train_loss {:.4f}", run.train_loss);
  line(text, done ? kGreen : kRed);
  if (!run.last_checkpoint.empty()) line("last checkpoint: " + run.last_checkpoint);
  if (!run.next_command.empty()) line("next: " + run.next_command);
}

void ConsoleSink::redraw(const std::string& text, bool closes) {
  const auto columns = static_cast<size_t>(std::max(options_.width - 1, 1));
  out_ << kEraseLine << text.substr(0, columns);
  if (closes) out_ << '\n';
  drawing_ = !closes;
}

void ConsoleSink::line(std::string_view text, std::string_view style) {
  if (drawing_) out_ << kEraseLine;
  drawing_ = false;
  const bool styled = options_.color && !style.empty();
  out_ << (styled ? style : "") << printable(text) << (styled ? kReset : "") << '\n';
}

}  // namespace lockstep
