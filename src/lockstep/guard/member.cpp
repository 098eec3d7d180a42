#include "lockstep/guard/member.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/guard/crash_words.h"
#include "lockstep/guard/thread_stack.h"
#include "lockstep/guard/unix_socket.h"

namespace lockstep {
namespace {

constexpr int kWelcomeMs = 10'000;
constexpr auto kStackPatience = std::chrono::milliseconds(200);
constexpr auto kLook = std::chrono::seconds(1);  // for the end of this object; words ring the bell

Error no_agent(const std::string& why) {
  return Error(ExitCode::kCommunication, fmt::format("joining the roll call of this node: {}", why),
               "start all ranks again; LOCKSTEP_AGENT must be left as the launcher has set it");
}

}  // namespace

Identity own_identity(int rank, int world_size, int local_rank, int node) {
  Identity identity{.rank = rank,
                    .world_size = world_size,
                    .local_rank = local_rank,
                    .node = node,
                    .pid = ::getpid(),
                    .main_thread = static_cast<int64_t>(::syscall(SYS_gettid))};
  const auto real = std::chrono::system_clock::now().time_since_epoch();
  identity.realtime_offset_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(real).count() - steady_ns();
  identity.host = FixedText<64>(host_name());
  return identity;
}

Member::Member(Recorder& recorder, MemberOptions options) : recorder_(recorder), options_(std::move(options)) {
  prepare_thread_stacks();
  explain_crashes_without_memory(recorder_.memory());
  recorder_.introduce(options_.identity);
  greet();
  thread_ = std::make_unique<Worker>("roll call", [this](const std::stop_token& stop) { listen(stop); });
}

Member::~Member() {
  thread_->request_stop();
  recorder_.board().bell.fetch_add(1);
  wake_all(recorder_.board().bell);
  thread_.reset();
  // The socket stays open: its end is the end of the process, and this is not yet that.
}

void Member::greet() {
  socket_ = connect_to_name(options_.address);
  if (socket_ < 0) throw no_agent(fmt::format("nobody listens at \"{}\" ({})", options_.address, std::strerror(errno)));
  if (!peer_of(socket_).second) {  // the address may come from the meeting point, where anybody writes
    ::close(socket_);
    throw no_agent(fmt::format("another user's process listens at \"{}\"", options_.address));
  }
  const Json greeting = {{"rank", options_.identity.rank}};
  const auto packet = send_packet(socket_, greeting.dump(), recorder_.memory()->fd())
                          ? receive_packet(socket_, kWelcomeMs)
                          : std::nullopt;
  const Json answer = packet ? parse_json_or_discard(packet->text) : Json();
  if (!answer.is_object() || !answer.contains("welcome")) {
    ::close(socket_);
    throw no_agent(answer.is_object() ? "refused: " + answer.value("refused", std::string("no reason")) : "no answer");
  }
  tree_port_ = answer.value("tree_port", 0);
  recorder_.set_watched(answer.value("strict", false));
}

void Member::tell_salt(const std::string& salt) const { send_packet(socket_, Json({{"salt", salt}}).dump()); }

void Member::tell_parent(const std::string& host, int port) const {
  send_packet(socket_, Json({{"host", host}, {"port", port}}).dump());
}

void Member::tell_ended(int rank, int exit_code) const {
  send_packet(socket_, Json({{"ended", rank}, {"exit_code", exit_code}}).dump());
}

void Member::listen(const std::stop_token& stop) {
  Board& board = recorder_.board();
  while (!stop.stop_requested()) {
    const uint32_t seen = board.bell.load(std::memory_order_acquire);
    const uint32_t wanted = board.stack_wanted.load(std::memory_order_acquire);
    if (wanted > board.stack_given.load(std::memory_order_relaxed)) {
      const auto thread = static_cast<pid_t>(options_.identity.main_thread);
      std::string stack = options_.own_stack ? options_.own_stack() : "";
      if (stack.empty()) stack = stack_of_thread(thread, kStackPatience);
      board.stack.write(FixedText<8192>(stack));
      board.stack_given.store(wanted, std::memory_order_release);
    }
    if (recorder_.has_ending()) return leave_or_end(board.ending.read_any(), stop);
    wait_for_change(board.bell, seen, kLook);
  }
}

/// The main thread is told, and unblocked where a transport can be; one that is stuck elsewhere does not hold the
/// process, and neither does a transport that fails at it or does not come back.
void Member::leave_or_end(const Ending& ending, const std::stop_token& stop) {
  const Deadline deadline(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.grace_seconds)));
  const Worker unblocks("ending", [&](const std::stop_token&) {
    if (options_.on_ending) options_.on_ending(ending);
  });
  while (!deadline.passed()) {
    if (stop.stop_requested()) return;
    wait_for_change(recorder_.board().bell, recorder_.board().bell.load(),
                    std::min<Clock::duration>(deadline.left(), std::chrono::milliseconds(50)));
  }
  if (stop.stop_requested()) return;
  if (options_.before_exit) options_.before_exit(ending);
  ::_exit(static_cast<int>(ending.exit_code));
}

}  // namespace lockstep
