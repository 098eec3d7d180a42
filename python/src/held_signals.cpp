#include "held_signals.h"

#include <atomic>
#include <csignal>
#include <ctime>

#include <unistd.h>

#include "lockstep/guard/asked_to_end.h"
#include "lockstep/guard/flight_ring.h"

namespace lockstep::python {
namespace {

std::atomic<Board*> board_of_signals{nullptr};
std::atomic<pid_t> rank_of_signals{0};

void wait_a_moment(int milliseconds) {
  const timespec look{.tv_sec = 0, .tv_nsec = 10'000'000};
  for (int i = 0; i < milliseconds / 10; ++i) ::nanosleep(&look, nullptr);
}

void end_as_it_would(int signal) {
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// A child that was forked has the handlers and the board, and is not the rank.
bool is_rank() { return ::getpid() == rank_of_signals.load(); }

LastWords kept_words;  // made before: a handler makes nothing
std::atomic<bool> has_words{false};

/// Whoever takes the words says them: a board has one writer.
void say_kept_words(Board& board) {
  if (!take_back_words() || board.last_words.version() > 0) return;
  kept_words.at_ns = steady_ns();
  board.last_words.write(kept_words);
  board.life.store(Life::kFailing, std::memory_order_release);
}

struct sigaction abort_before = {};  // Python's faulthandler, which prints where all threads stand, or a person's own
std::atomic<bool> holds_abort{false};

void on_abort(int signal) {
  if (is_rank()) {
    say_kept_words(*board_of_signals.load());
    board_of_signals.load()->aborts_since_ns.store(steady_ns(), std::memory_order_release);
    wait_a_moment(2000);
  }
  ::sigaction(signal, &abort_before, nullptr);
  ::raise(signal);
}

void on_terminate(int signal) {
  if (is_rank()) {
    Board& board = *board_of_signals.load();
    board.asked_since_ns.store(steady_ns(), std::memory_order_release);
    wait_a_moment(1000);
    board.exit_code.store(kAskedToEnd, std::memory_order_release);
    board.life.store(Life::kFinished, std::memory_order_release);
  }
  end_as_it_would(signal);
}

}  // namespace

void abort_at_last() {
  Board* board = board_of_signals.load();
  if (board == nullptr || board->aborts_since_ns.load() == 0) return;
  ::sigaction(SIGABRT, &abort_before, nullptr);
  ::raise(SIGABRT);
}

void say_if_aborted(const LastWords& words) {
  take_back_words();
  kept_words = words;
  has_words.store(true, std::memory_order_release);
}

bool take_back_words() { return has_words.exchange(false, std::memory_order_acq_rel); }

void hold_signals(Board& board) {
  board_of_signals.store(&board);
  rank_of_signals.store(::getpid());
  const auto before = [](int signal) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    return action;
  };
  const auto install = [](int signal, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    ::sigaction(signal, &action, nullptr);
  };
  // Once: a child that was forked, and joins a job of its own, would be told that this one came before itself.
  if (!holds_abort.exchange(true)) {
    abort_before = before(SIGABRT);
    install(SIGABRT, on_abort);
  }
  if (before(SIGTERM).sa_handler == SIG_DFL) install(SIGTERM, on_terminate);  // else somebody ends it his way
}

}  // namespace lockstep::python
