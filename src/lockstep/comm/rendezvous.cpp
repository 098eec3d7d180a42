#include "lockstep/comm/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/happens_before.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/await_listener.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/comm/peer_names.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/guard/frames.h"

namespace lockstep {
namespace {

constexpr Clock::duration kSoonest = std::chrono::milliseconds(5), kLatest = std::chrono::milliseconds(250);
constexpr const char *kRound = "round", *kPrefix = "lockstep";

std::chrono::milliseconds milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

CollectiveError gone(const std::string& key, const std::exception& error) {
  return CollectiveError(
      fmt::format("\"{}\" cannot be read any more at the meeting point: {}", key, first_line(error.what())),
      "rank 0, which has it, ended: its lines say why");
}

CollectiveError did_not_come(const std::string& key, Clock::duration patience) {
  return CollectiveError(
      fmt::format("\"{}\" did not come within {}", key,
                  format_duration(std::chrono::duration<double>(patience).count())),
      "a rank did not start, or ended before it met the others: look for the first error among the ranks");
}

// ---- Questions: a store that outlives the rounds of a job holds keys of all of them. What a rank is told under a key that
// nobody else has ever known is of its own round.

std::string asked_key(const std::string& question) { return "asked/" + question; }
std::string asked_key(const std::string& question, int64_t number) {
  return fmt::format("asked/{}/{}", question, number);
}

/// Returns the key of the answer.
std::string ask_at(c10d::Store& lasting, const std::string& question) {
  const std::string key = "answer/" + random_token();
  const int64_t number = lasting.add(asked_key(question), 1);
  lasting.set(asked_key(question, number), bytes_of(key));
  return key;
}

/// Answers those of earlier rounds too, who are gone: who asks now cannot be told from them.
void answer_at(c10d::Store& lasting, Rendezvous::Impl::Question& question) {
  const int64_t asked = lasting.add(asked_key(question.name), 0);
  while (question.asked < asked) question.unread.push_back(++question.asked);
  std::erase_if(question.unread, [&](int64_t number) {
    const std::string key = asked_key(question.name, number);
    if (!lasting.check({key})) return false;
    lasting.set(text_at(lasting, key), bytes_of(question.answer));
    return true;
  });
}

}  // namespace

Rendezvous::Rendezvous(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Rendezvous::~Rendezvous() = default;

std::shared_ptr<Rendezvous> Rendezvous::in_process() {
  auto impl = std::make_unique<Impl>();
  impl->store = c10::make_intrusive<c10d::HashStore>();
  return std::shared_ptr<Rendezvous>(new Rendezvous(std::move(impl)));
}

namespace {

/// c10d waits without a limit for the first answer of whoever listens there, and a program that is no store gives none.
c10::intrusive_ptr<c10d::Store> store_within(const std::string& host, const c10d::TCPStoreOptions& options,
                                             Clock::duration answers = std::chrono::seconds(1)) {
  using Made = c10::intrusive_ptr<c10d::Store>;
  auto promise = std::make_shared<std::promise<Made>>();
  std::future<Made> made = promise->get_future();
  // No Worker: one that is stuck in a read can only be left behind, and the process ends with the error.
  std::thread([promise, host, options] {
    try {
      promise->set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (made.wait_for(options.timeout + answers) != std::future_status::ready) {
    throw std::runtime_error("what listens there does not answer as a rank does: another program has that port");
  }
  return made.get();
}

/// Who is asked must not wait for one that gives no answer: it is no meeting, then.
std::string who_meets_at(int port) {
  constexpr auto kAnswers = std::chrono::milliseconds(150);
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.timeout = kAnswers;
    c10d::PrefixStore store(kPrefix, store_within("127.0.0.1", options, kAnswers));
    if (store.check({kOpened})) {
      return fmt::format("another job's meeting ({})", MeetingOwner::read(text_at(store, kOpened)).phrase());
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): whatever it is, it is no meeting
  }
  return "another program";
}

/// torchrun's agents keep their store when they start ranks again, and tell the ranks of no number that is the same on all nodes:
/// TORCHELASTIC_RESTART_COUNT counts the failures of a node's own ranks, not that nodes come and go. Source: torch 2.11
/// elastic/agent/server/api.py _invoke_run, elastic/rendezvous/dynamic_rendezvous.py next_rendezvous.
void begin_round(const World& world, c10::intrusive_ptr<c10d::Store> lasting, Rendezvous::Impl& impl) {
  impl.lasting = std::move(lasting);
  impl.who =
      fmt::format("rank {} of {}: its meeting at {}:{}", world.rank, world.size, world.master_addr, world.master_port);
  if (world.rank > 0) {
    impl.own_question = ask_at(*impl.lasting, kRound);
    return;
  }
  impl.round = random_token();
  impl.store = c10::make_intrusive<c10d::PrefixStore>(impl.round, impl.lasting);
  impl.lasting->set(kRound, bytes_of(impl.round));
  impl.answered.push_back({.name = kRound, .answer = impl.round});
}

}  // namespace

MeetingOwner MeetingOwner::own(const std::string& job) { return {.job = job, .host = host_name(), .pid = ::getpid()}; }

/// "77|hosta|Slurm job 5.0".
std::string MeetingOwner::text() const { return fmt::format("{}|{}|{}", pid, host, job); }

MeetingOwner MeetingOwner::read(const std::string& text) {
  MeetingOwner owner;
  const size_t first = text.find('|'), second = first == std::string::npos ? first : text.find('|', first + 1);
  if (second == std::string::npos) return owner;
  std::from_chars(text.data(), text.data() + first, owner.pid);
  owner.host = text.substr(first + 1, second - first - 1);
  owner.job = text.substr(second + 1);
  return owner;
}

std::string MeetingOwner::phrase() const {
  return fmt::format("{}opened by process {} on {}", job.empty() ? "" : job + ", ", pid, host);
}

std::shared_ptr<Rendezvous> Rendezvous::tcp(const World& world, Clock::duration patience) {
  print_peers_by_number();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.master_port);
  options.isServer = world.rank == 0 && !world.agent_hosts_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(patience);
  if (options.isServer && port_is_taken(world.master_port)) {
    throw CollectiveError(
        fmt::format("rank {} of {}: the meeting point {}:{} cannot be opened: {} has that port on this machine",
                    world.rank, world.size, world.master_addr, world.master_port, who_meets_at(world.master_port)),
        fmt::format("start all ranks with MASTER_PORT={}, which is free now", free_port()));
  }
  auto impl = std::make_unique<Impl>();
  if (!options.isServer) {
    const Deadline deadline(patience);
    await_listener(world.master_addr, world.master_port, deadline);
    if (deadline.passed()) options.timeout = milliseconds(kLatest);  // only to hear why
  }
  try {
    auto store = c10::make_intrusive<c10d::PrefixStore>(kPrefix, store_within(world.master_addr, options));
    if (world.agent_hosts_store) {
      begin_round(world, std::move(store), *impl);
    } else {  // rank 0's, as old as this round
      impl->store = std::move(store);
    }
  } catch (const std::exception& e) {
    throw CollectiveError(
        fmt::format("rank {} of {}: the meeting point {}:{} was not reached within {} ({})", world.rank, world.size,
                    world.master_addr, world.master_port,
                    format_duration(std::chrono::duration<double>(patience).count()), first_line(e.what())),
        "MASTER_ADDR and MASTER_PORT must name rank 0's host and a free port on it, the same on all ranks");
  }
  return std::shared_ptr<Rendezvous>(new Rendezvous(std::move(impl)));
}

bool Rendezvous::joined() {
  try {
    serve();
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw gone(kRound, error);
  }
  return impl_->store != nullptr;
}

/// What this rank owes to those who ask, and whether it has been answered itself.
void Rendezvous::serve() {
  Impl& impl = *impl_;
  if (impl.lasting == nullptr) return;
  for (auto& question : impl.answered) answer_at(*impl.lasting, question);
  if (impl.store == nullptr && impl.lasting->check({impl.own_question})) {
    impl.round = text_at(*impl.lasting, impl.own_question);
    impl.store = c10::make_intrusive<c10d::PrefixStore>(impl.round, impl.lasting);
  }
  if (impl.store == nullptr || text_at(*impl.lasting, kRound) == impl.round) return;
  throw CollectiveError(fmt::format("{} is over: a rank 0 that was started later has opened another there", impl.who),
                        "torchrun starts its ranks anew, so that they meet; two jobs need two MASTER_PORTs");
}

void Rendezvous::answer(const std::string& question, const std::string& value) {
  if (impl_->store != nullptr) set(question, value);
  if (impl_->lasting == nullptr) return;
  impl_->answered.push_back({.name = question, .answer = value});
  serve();
}

std::string Rendezvous::ask(const std::string& question, Clock::duration patience) {
  if (impl_->store != nullptr) return get(question, patience);
  const Deadline deadline(patience);
  try {
    const std::string key = ask_at(*impl_->lasting, question);
    for (Clock::duration pause = kSoonest; !impl_->lasting->check({key}); pause = std::min(2 * pause, kLatest)) {
      if (deadline.passed()) throw did_not_come(question, patience);
      std::this_thread::sleep_for(pause);
    }
    return text_at(*impl_->lasting, key);
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw gone(question, error);
  }
}

void Rendezvous::set(const std::string& key, const std::string& value) {
  check(impl_->store != nullptr, "a rank has joined the round in which it tells others something");
  ordered_before(impl_.get());
  impl_->store->set(key, bytes_of(value));
}

std::optional<std::string> Rendezvous::look(const std::string& key) {
  if (!joined()) return std::nullopt;
  try {
    if (!impl_->store->check({key})) return std::nullopt;
    auto text = text_at(*impl_->store, key);
    ordered_after(impl_.get());
    return text;
  } catch (const std::exception& error) {
    throw gone(key, error);
  }
}

std::string Rendezvous::get(const std::string& key, Clock::duration patience) {
  check(impl_->store != nullptr, "a rank has joined the round in which it asks for " + key);
  const Deadline late(patience / 2);  // the store's own limit is in whole milliseconds
  try {
    impl_->store->wait({key}, milliseconds(patience));
    auto text = text_at(*impl_->store, key);
    ordered_after(impl_.get());
    return text;
  } catch (const std::exception& error) {
    if (!late.passed()) throw gone(key, error);
    throw did_not_come(key, patience);
  }
}

}  // namespace lockstep
