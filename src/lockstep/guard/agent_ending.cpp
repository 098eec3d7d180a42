// The end of a job: what is kept, what people read, and that nobody stays.
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/guard/agent.h"
#include "lockstep/guard/member.h"
#include "lockstep/guard/post_mortem.h"

namespace lockstep {
namespace {

constexpr auto kStackPatience = std::chrono::milliseconds(150);
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr auto kObey = std::chrono::seconds(1);  // in which ranks that end at a signal have all done so

/// What a person must mend in flags or files needs no autopsy.
bool wants_post_mortem(const Diagnosis& diagnosis) {
  const auto code = static_cast<ExitCode>(diagnosis.exit_code);
  return diagnosis.fault != Fault::kFacts &&
         !(diagnosis.fault == Fault::kError && (code == ExitCode::kUsage || code == ExitCode::kData ||
                                                code == ExitCode::kCheckpoint || code == ExitCode::kInterrupted));
}

/// What a rank does while it cleans up after an error is not the cause.
void name_the_exception(Diagnosis& diagnosis) {
  if (diagnosis.fault == Fault::kError || !diagnosis.stack.starts_with(kExceptionOnItsWay)) return;
  diagnosis.headline += "; " + diagnosis.stack.substr(0, diagnosis.stack.find('\n'));
  diagnosis.fix = "mend what raised it, and make no call while an exception is on its way (finally, except, __exit__)";
}

}  // namespace

/// The first line, in the words of whoever is to blame.
std::string Agent::headline(const Diagnosis& diagnosis) const {
  if (diagnosis.exit_code == static_cast<int>(ExitCode::kInterrupted)) {  // somebody's wish
    return fmt::format("{}: {}", options_.program, diagnosis.headline);
  }
  return fmt::format("{}: {}: {}", options_.program, diagnosis.fault == Fault::kError ? "error" : "the job was ended",
                     diagnosis.headline);
}

/// Told at once: the other nodes may have given this one up, and end it before it can judge for itself.
void Agent::look_at_own_absence() {
  const auto seconds = absence_.look(absence_clock());
  if (!seconds || tree_ == nullptr || quiet_) return;
  say(fmt::format(
      "{}: notice: node {} was away for {}: none of its processes did anything (SIGSTOP, a paused container or "
      "virtual machine, a suspended host); the other nodes may have given it up",
      options_.program, options_.node, format_duration(*seconds)));
}

/// What is left of a job whose ranks end as they were asked to, one after another, follows from that.
bool Agent::outlasts_the_wish(const Census& census, const Judgement& judgement) {
  if (somebody_obeyed(census)) return false;
  if (judgement.verdict != Verdict::kEnd) wrong_since_ = {};
  if (judgement.verdict != Verdict::kEnd) return true;
  if (wrong_since_ == Clock::time_point{}) wrong_since_ = Clock::now();
  return Clock::now() - wrong_since_ >= kObey;
}

Diagnosis Agent::explained(Diagnosis found) const {
  Absence::Node own{.number = options_.node, .num_nodes = options_.num_nodes};
  own.ranks.add_stretch(options_.first_rank, options_.first_rank + options_.local_ranks - 1);
  return absence_.explained(std::move(found), own, absence_clock());
}

void Agent::end_job(Diagnosis diagnosis) {
  diagnosis = explained(std::move(diagnosis));
  if (options_.only_tells) return tell_end(std::move(diagnosis));
  if (wants_post_mortem(diagnosis)) ranks_.fetch_stacks(kStackPatience);
  const auto reports = ranks_.reports(FlightRing::kSize);
  for (const auto& report : reports) {
    if (diagnosis.stack.empty() && diagnosis.culprits.contains(report.rank)) diagnosis.stack = report.stack;
  }
  name_the_exception(diagnosis);
  Conclusion conclusion{.exit_code = diagnosis.exit_code};
  if (wants_post_mortem(diagnosis)) {
    conclusion.post_mortem = write_post_mortem(post_mortem_folder(reports), reports, to_json(diagnosis));
  }
  if (diagnosis.fault == Fault::kError) {
    conclusion.text = headline(diagnosis);
    if (!diagnosis.error_hint.empty()) conclusion.text += fmt::format("\n  hint: {}", diagnosis.error_hint);
  } else {
    Diagnosis named = diagnosis;
    named.headline = headline(diagnosis);
    conclusion.text = named.text();
    if (!conclusion.post_mortem.empty()) {
      conclusion.text += fmt::format("\n  more    lockstep report --post-mortem {}", conclusion.post_mortem);
    }
  }
  const std::string message = diagnosis.fault == Fault::kError ? diagnosis.headline : diagnosis.text();
  const Ending ending{.exit_code = diagnosis.exit_code,
                      .message = FixedText<8192>(message),
                      .hint = FixedText<1024>(diagnosis.error_hint),
                      .post_mortem = FixedText<1024>(conclusion.post_mortem)};
  if (tree_ != nullptr) {
    tree_->send_down({{"kind", "end"},
                      {"exit_code", diagnosis.exit_code},
                      {"text", conclusion.text},
                      {"headline", diagnosis.headline},
                      {"message", message},
                      {"hint", diagnosis.error_hint},
                      {"post_mortem", conclusion.post_mortem},
                      {"diagnosis", to_json(diagnosis).dump(-1, ' ', false, Json::error_handler_t::replace)}});
  }
  conclusion.diagnosis = std::move(diagnosis);
  conclusion_ = std::move(conclusion);
  end_ranks(ending);
}

/// In place of an end. Once: what follows from a fault is found anew at every look.
void Agent::tell_end(Diagnosis diagnosis) {
  if (!told_.insert(diagnosis.fault).second || diagnosis.fault == Fault::kError) return;
  diagnosis.headline = fmt::format("{}: notice: {}", options_.program, diagnosis.headline);
  say(diagnosis.text());
}

void Agent::end_ranks(const Ending& ending) {
  ended_at_ = Clock::now();
  ranks_.tell_ending(ending);
  ranks_.kill_deaf();
}

/// Nobody stays: who has not left after the grace is killed.
void Agent::enforce() {
  ranks_.kill_deaf();
  if (seconds_since(ended_at_) > options_.grace_seconds) ranks_.kill(SIGKILL);
}

int Agent::watch_to_the_end(const std::function<bool()>& abandoned) {
  bool told = false;
  const auto tell = [&](const std::optional<Conclusion>& end) {
    if (end && !told) say(end->text);
    told = end.has_value();
  };
  while (!all_gone()) {
    std::this_thread::sleep_for(kLook);
    tell(conclusion());
    if (const std::lock_guard lock(mutex_); !watches_) ranks_.pump();  // it still ends with its ranks
    if (!any_joined() && abandoned()) return 0;
  }
  const auto end = close();
  tell(end);
  return end ? end->exit_code : 0;
}

}  // namespace lockstep
