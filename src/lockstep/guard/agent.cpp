#include "lockstep/guard/agent.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/guard/post_mortem.h"

namespace lockstep {
namespace {

constexpr size_t kTail = 64;                             // calls of each rank that a roll call looks at
constexpr double kWaitLooks = 0.05, kWaitAlerts = 0.15;  // seconds of waiting before this node, and others, look
constexpr auto kTurn = std::chrono::milliseconds(25);
constexpr auto kStrictTurn = std::chrono::milliseconds(1);
constexpr auto kCalm = std::chrono::seconds(1);  // between looks when nothing is suspicious
constexpr auto kAlert = std::chrono::seconds(2);
constexpr auto kCensusPause = std::chrono::milliseconds(200);
constexpr auto kFresh = std::chrono::milliseconds(1000), kLately = std::chrono::milliseconds(10'000);
constexpr auto kPacePause = std::chrono::seconds(1);
constexpr auto kStackPatience = std::chrono::milliseconds(500);
constexpr double kParentSilence = 6;
constexpr auto kLastNode = std::chrono::minutes(10);  // between the end of this node's ranks and that of those below
constexpr auto kLastGreeting = std::chrono::seconds(1);
constexpr double kNoticeGrowth = 3;

std::string text_of(const Json& message, const char* name) {
  const auto at = message.find(name);
  return at != message.end() && at->is_string() ? at->get<std::string>() : std::string();
}

RankSet ranks_of(const Json& message) {
  RankSet ranks;
  const auto at = message.find("ranks");
  if (at == message.end() || !at->is_array()) return ranks;
  for (const auto& rank : *at) {
    if (rank.is_number_integer()) ranks.add(rank.get<int>());
  }
  return ranks;
}

}  // namespace

Agent::Agent(AgentOptions options) : options_(std::move(options)), ranks_(options_.node, options_.name) {
  if (options_.num_nodes > 1) tree_ = std::make_unique<TreeLink>(options_.node, options_.num_nodes);
  ranks_.set_welcome(options_.strict, tree_ == nullptr ? 0 : tree_->port());
  for (int local = 0; local < options_.local_ranks; ++local) {
    ranks_.expect(options_.first_rank + local, local, options_.world_size, 0);
  }
  if (!options_.begins_later) begin();
}

void Agent::begin() {
  thread_ = std::make_unique<Worker>("agent", [this](const std::stop_token& stop) { run(stop); });
}

Agent::~Agent() { thread_.reset(); }

std::string Agent::address() const { return ranks_.name(); }

void Agent::started(int rank, int local_rank, pid_t pid) {
  const std::lock_guard lock(mutex_);
  ranks_.expect(rank, local_rank, options_.world_size, pid);
}

void Agent::process_ended(int rank, const ProcessEnd& end) {
  const std::lock_guard lock(mutex_);
  ranks_.ended(rank, end);
}

void Agent::adopt(const Identity& identity, std::shared_ptr<BoardMemory> board) {
  const std::lock_guard lock(mutex_);
  ranks_.adopt(identity, std::move(board));
}

void Agent::asked_to_stop() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
}

void Agent::interrupted() {
  const std::lock_guard lock(mutex_);
  asked_ = quiet_ = true;
}

std::optional<Conclusion> Agent::conclusion() const {
  const std::lock_guard lock(mutex_);
  return conclusion_;
}

bool Agent::any_joined() const {
  const std::lock_guard lock(mutex_);
  return ranks_.any_joined();
}

bool Agent::all_gone() const {
  const std::lock_guard lock(mutex_);
  return ranks_.all_gone();
}

bool Agent::hears_children() const {
  const std::lock_guard lock(mutex_);
  return tree_ == nullptr || tree_->children_fresh(kLately);
}

std::optional<Conclusion> Agent::close(const std::function<void()>& meanwhile) {
  const Deadline last_node(kLastNode);
  while (!last_node.passed() && others_need_this_node()) {
    if (meanwhile) meanwhile();
    std::this_thread::sleep_for(kTurn);
  }
  const Deadline greeting(kLastGreeting);
  while (!greeting.passed() && meeting_parent()) std::this_thread::sleep_for(kTurn);
  thread_.reset();
  const std::lock_guard lock(mutex_);
  ranks_.pump();
  if (!conclusion_ && !quiet_) {
    // What the transport paired without noticing shows here at the latest.
    JudgeOptions options = options_.judge;
    options.whole = tree_ == nullptr;
    const Census census = ranks_.census(FlightRing::kSize);
    const Judgement judgement = judge(census, options);
    if (judgement.verdict == Verdict::kEnd && !(asked_ && somebody_obeyed(census))) end_job(judgement.diagnosis);
  }
  if (tree_ != nullptr) {
    Census census = ranks_.census(kTail);
    census.add(tree_->children_census());
    tree_->send_census(census, /*whole=*/true);
    tree_->say_goodbye();
    tree_->pump();
  }
  return conclusion_;
}

/// Nodes below talk through this one, and are judged with it, until they have ended as well.
bool Agent::others_need_this_node() const {
  const std::lock_guard lock(mutex_);
  return tree_ != nullptr && !conclusion_ && !asked_ && !tree_->children_left();
}

/// Of a job so short that its nodes are still greeting each other: the last census should get through.
bool Agent::meeting_parent() const {
  const std::lock_guard lock(mutex_);
  return tree_ != nullptr && !conclusion_ && !asked_ && tree_->meeting_parent();
}

void Agent::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      try {
        turn();
      } catch (const std::exception& error) {  // a watcher that fails must not fail in silence, nor end the job
        watches_ = !std::exchange(stumbled_, true);
        if (!watches_) return;
        say(fmt::format("{}: notice: the roll call stumbled ({}); at the next time nobody watches any more",
                        options_.program, error.what()));
      }
    }
    wait_for_news();
  }
}

void Agent::wait_for_news() {
  std::vector<pollfd> fds;
  {
    const std::lock_guard lock(mutex_);
    // Only what tells of a new peer, and of the end of one: what ranks do is read, not told.
    if (tree_ != nullptr) {
      for (const int fd : tree_->descriptors()) fds.push_back({fd, POLLIN, 0});
    }
    const std::vector<int> door_and_ranks = ranks_.descriptors();
    fds.push_back({door_and_ranks.front(), POLLIN, 0});
    for (size_t i = 1; i < door_and_ranks.size(); ++i) fds.push_back({door_and_ranks[i], POLLRDHUP, 0});
  }
  const auto pause = options_.strict ? kStrictTurn : kTurn;
  ::poll(fds.data(), fds.size(), static_cast<int>(pause.count()));
}

void Agent::turn() {
  look_at_own_absence();
  ranks_.pump();
  for (const auto& word : ranks_.take_words()) hear_rank(parse_json_or_discard(word));
  if (tree_ != nullptr) {
    const TreeNews received = tree_->pump();
    for (const auto& notice : received.notices) say(fmt::format("{}: notice: {}", options_.program, notice));
    // Who is here, should this node fall silent.
    if (received.parent_met) tree_->send_census(ranks_.census(1), /*whole=*/false);
    for (const auto& order : received.from_parent) obey(parse_json_or_discard(order));
    for (const auto& word : received.from_children) hear(parse_json_or_discard(word));
  }
  if (conclusion_) return enforce();
  if (options_.strict) ranks_.clear_calls();
  watch_pace();
  if (quiet_) return;
  const auto now = Clock::now();
  if (ranks_.suspicious(kWaitAlerts)) alert(now);
  // Seen at once, also where the transport goes on without noticing. Lines may differ by right: those are looked at in turn.
  const auto [parted, lines_differ, any_nan] = ranks_.compare();
  const bool doubtful = lines_differ || (any_nan && !told_.contains(Fault::kNan));
  const size_t joined = ranks_.num_joined();
  const bool looks = parted || (doubtful && !doubtful_) || joined != joined_;
  doubtful_ = doubtful;
  joined_ = joined;
  if (looks || now < alert_until_ || ranks_.suspicious(kWaitLooks) || now - looked_ >= kCalm) {
    hold_roll_call(parted || doubtful ? FlightRing::kSize : kTail);
  }
  ranks_.release_finished();
}

/// All agents look closely for a while.
void Agent::alert(Clock::time_point now) {
  const bool was_calm = now >= alert_until_;
  alert_until_ = now + kAlert;
  if (tree_ == nullptr) return;
  if (!is_root() && (was_calm || now - suspected_ >= kFresh)) {
    suspected_ = now;
    tree_->send_up({{"kind", "suspect"}});
  }
  if (is_root() && now - ordered_report_ >= kFresh) {
    ordered_report_ = now;
    tree_->send_down({{"kind", "report"}});
  }
}

/// What a child says besides its census.
void Agent::hear(const Json& word) {
  const std::string kind = message_kind(word);
  if (kind == "suspect") {
    alert(Clock::now());
  } else if (kind == "pace") {
    const auto at = word.find("nodes");
    if (at == word.end() || !at->is_array()) return;
    for (const auto& one : *at) {
      if (auto pace = node_pace_from_json(one)) children_pace_.push_back(*pace);
    }
  }
}

/// What the parent says.
void Agent::obey(const Json& order) {
  const std::string kind = message_kind(order);
  if (tree_ != nullptr) tree_->send_down(order);
  if (kind == "report") {
    alert_until_ = Clock::now() + kAlert;
  } else if (kind == "stack") {
    ranks_.want_stacks(ranks_of(order));
  } else if (kind == "end" && !conclusion_) {
    const auto code = order.find("exit_code");
    const int exit_code = code != order.end() && code->is_number_integer() ? code->get<int>() : 1;
    conclusion_ = Conclusion{.text = text_of(order, "text"), .exit_code = exit_code};
    conclusion_->diagnosis.headline = text_of(order, "headline");
    conclusion_->post_mortem = text_of(order, "post_mortem");
    write_post_mortem(conclusion_->post_mortem, ranks_.reports(FlightRing::kSize),
                      parse_json_or_discard(text_of(order, "diagnosis")));
    end_ranks({.exit_code = exit_code,
               .message = FixedText<8192>(text_of(order, "message")),
               .hint = FixedText<1024>(text_of(order, "hint"))});
  }
}

/// What a rank of this node has seen: that another one has ended. What the first one has learnt at the meeting point: the salt of the
/// job's key, then where the parent is.
void Agent::hear_rank(const Json& word) {
  if (!word.is_object()) return;
  const auto ended = word.find("ended"), status = word.find("exit_code");
  if (ended != word.end() && ended->is_number_integer() && status != word.end() && status->is_number_integer()) {
    ranks_.ended_before_joining(ended->get<int>(), status->get<int>());
  }
  if (tree_ == nullptr) return;
  if (const std::string salt = text_of(word, "salt"); !salt.empty() && !tree_->has_key()) {
    tree_->set_key(tree_key(options_.job_secret, salt));
    if (is_root() && options_.job_secret.empty()) {
      say(fmt::format(
          "{}: notice: LOCKSTEP_JOB_SECRET is not set: whoever can read this job's meeting point can speak in "
          "the roll call of its nodes, and end the job; give all nodes one long random text",
          options_.program));
    }
  }
  const auto port = word.find("port");
  if (is_root() || port == word.end() || !port->is_number_integer()) return;
  const std::string host = text_of(word, "host");
  if (!tree_->connect_parent(host, port->get<int>())) {
    say(fmt::format("{}: notice: the agent of node {} cannot be looked for at {}:{}; node {} judges its ranks alone",
                    options_.program, tree_parent(options_.node), host, port->get<int>(), options_.node));
  }
}

void Agent::hold_roll_call(size_t tail) {
  looked_ = Clock::now();
  Census census = ranks_.census(tail);
  JudgeOptions options = absence_.allowing(options_.judge, absence_clock());
  if (tree_ != nullptr) {
    // Ranks of other nodes are judged by what they said a moment ago, not by what they said before the wait.
    options.whole = tree_->children_fresh(kFresh);
    census.add(tree_->children_census());
    if (!is_root()) return report_up(census, options.whole);
  }
  Judgement judgement = judge(census, options);
  if (judgement.verdict == Verdict::kEnd && tree_ == nullptr && tail < FlightRing::kSize) {
    // With all that is recorded the same is told better.
    Judgement closer = judge(ranks_.census(FlightRing::kSize), options);
    if (closer.verdict == Verdict::kEnd) judgement = std::move(closer);
  }
  if (asked_ && !outlasts_the_wish(census, judgement)) return;
  consider(judgement);
  if (!conclusion_ && !asked_) tell_doubts(census);
}

/// What is wrong as far as one can see, and may be meant so: told once; a strict guard does not go on with it.
void Agent::tell_doubts(const Census& census) {
  for (const auto judge_doubt : {judge_lines, judge_nan, judge_asked}) {
    const Judgement found = judge_doubt(census);
    if (found.verdict == Verdict::kFine || !told_.insert(found.diagnosis.fault).second) continue;
    if (options_.strict && found.diagnosis.fault != Fault::kDeath) return end_job(found.diagnosis);
    say(fmt::format("{}: notice: {}", options_.program, found.diagnosis.text()));
  }
}

void Agent::report_up(const Census& census, bool whole) {
  const auto now = Clock::now();
  if (now - reported_ >= kCensusPause) {
    reported_ = now;
    tree_->send_census(census, whole);
  }
  const auto silent = tree_->parent_silent_seconds();
  if (!silent) {  // at the start, before the nodes have met, each judges its own
    JudgeOptions own = absence_.allowing(options_.judge, absence_clock());
    own.whole = false;
    return consider(judge(census, own));
  }
  if (*silent <= kParentSilence) return;
  Diagnosis lost{.fault = Fault::kLostNode, .exit_code = static_cast<int>(ExitCode::kCommunication)};
  lost.headline = fmt::format("node {} does not answer any more", tree_parent(options_.node));
  lost.why = "the agent of that node is silent: its machine is down, its job has ended, or the network is cut";
  lost.fix = "look at the last lines of that node; check the machine and the network between the nodes";
  end_job(std::move(lost));
}

void Agent::consider(const Judgement& judgement) {
  if (judgement.verdict == Verdict::kEnd) return end_job(judgement.diagnosis);
  if (judgement.verdict == Verdict::kNotice) return tell_notice(judgement);
  if (case_.told) say(fmt::format("{}: notice: {} came; the job goes on", options_.program, case_.who));
  case_ = {};
}

/// Once when the patience begins to run, then with growing pauses.
void Agent::tell_notice(const Judgement& judgement) {
  const Diagnosis& found = judgement.diagnosis;
  const std::string key = fmt::format("{} {} {}", fault_name(found.fault), found.culprits.text(), found.seq);
  if (case_.key != key) case_ = {.key = key, .who = found.culprits.phrase()};
  if (judgement.waited_seconds < case_.next_notice) return;
  const auto now = Clock::now();
  if (case_.asked == Clock::time_point{}) {
    case_.asked = now;
    ranks_.want_stacks(found.culprits);
    if (tree_ != nullptr) tree_->send_down({{"kind", "stack"}, {"ranks", found.culprits.ranks()}});
  }
  if (found.fault == Fault::kStall && now - case_.asked < kStackPatience) return;
  case_.next_notice = std::max(judgement.waited_seconds, 1.0) * kNoticeGrowth;
  case_.asked = {};
  case_.told = true;
  say(fmt::format("{}: notice: {}", options_.program, found.text()));
}

void Agent::watch_pace() {
  const auto now = Clock::now();
  if (now - paced_ < kPacePause) return;
  paced_ = now;
  ranks_.tell_call_times();
  ranks_.observe_pace(straggling_, now);
  std::vector<NodePace> nodes = std::exchange(children_pace_, {});
  if (const auto own = straggling_.summary(now)) nodes.push_back(*own);
  if (is_root()) {
    if (const auto found = straggling_.judge(nodes, now)) {
      say(fmt::format("{}: notice: {}", options_.program, found->text()));
    }
  } else if (!nodes.empty()) {
    Json list = Json::array();
    for (const auto& node : nodes) list.push_back(to_json(node));
    tree_->send_up({{"kind", "pace"}, {"nodes", std::move(list)}});
  }
}

void Agent::say(const std::string& text) const {
  try {
    if (options_.say) options_.say(text);
  } catch (const std::exception&) {  // whoever read it is gone: the ranks are told, and watched, all the same
  }
}

}  // namespace lockstep
