#include "lockstep/metric/program_run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLongestOutput = size_t{64} << 20, kErrorsKept = size_t{64} << 10;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ExitCode::kInternal, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

InputFile::InputFile() : fd_(::memfd_create("lockstep-rows", MFD_CLOEXEC)) {
  if (!fd_.is_open()) fail("a file of memory for a program's input");
}

void InputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EFBIG) {
      throw data_error(fmt::format("a metric program's input: {}", std::strerror(errno)),
                       "a limit on the size of files holds for it too: ulimit -f unlimited");
    }
    if (written < 0 && errno != EINTR) fail("writing a program's input");
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

Descriptor InputFile::reopened() const {
  Descriptor again(::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!again.is_open()) fail("opening a program's input");
  return again;
}

ProgramRun::ProgramRun(const Program& program, const InputFile& input, Clock::duration patience)
    : deadline_(patience),
      child_(start_program(program, input.reopened().get(), out_.write.get(), err_.write.get(), true)) {
  for (Pipe* pipe : {&out_, &err_}) {
    pipe->write.close();
    ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  }
}

bool ProgramRun::advance(Clock::duration at_most) {
  const Deadline turn(at_most);
  while (!ended_) {
    read_outputs(std::min<Clock::duration>({turn.left(), deadline_.left(), Milliseconds(20)}));
    look_for_end();
    if (ended_ || turn.passed()) break;
  }
  return ended_;
}

/// True when something came.
bool ProgramRun::read_outputs(Clock::duration at_most) {
  std::array<pollfd, 2> fds = {{{out_.read.get(), POLLIN, 0}, {err_.read.get(), POLLIN, 0}}};
  const auto wait = std::chrono::duration_cast<Milliseconds>(at_most).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(wait)) <= 0) return false;
  const bool came = fds[0].revents != 0 || fds[1].revents != 0;
  if (fds[0].revents != 0) take(out_.read, result_.output);
  if (fds[1].revents != 0) take(err_.read, result_.errors);
  if (result_.errors.size() > 2 * kErrorsKept) result_.errors.erase(0, result_.errors.size() - kErrorsKept);
  return came;
}

void ProgramRun::take(Descriptor& from, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(from.get(), buffer.data(), buffer.size());
  if (size > 0) {
    into.append(buffer.data(), static_cast<size_t>(size));
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    from.close();
  }
}

/// A process that the program has left behind may hold the pipes open: its end counts, not theirs.
void ProgramRun::look_for_end() {
  result_.endless = result_.output.size() > kLongestOutput;
  result_.late = deadline_.passed() && !result_.endless;
  const bool killed = result_.late || result_.endless;
  if (killed) {
    child_.signal(SIGKILL);
    child_.await_end();
  }
  if (!child_.ended()) return;
  // Its group too, and not yet taken from the system's table: so that its number cannot be another's.
  child_.signal(SIGKILL);
  constexpr int kMostLeft = 64;  // reads; a pipe holds no more
  for (int i = 0; i < kMostLeft && read_outputs(Clock::duration::zero()); ++i) {
  }
  const ExitStatus status = child_.wait();
  ended_ = true;
  result_.late = result_.late && status.signal != 0;  // it may have come to its end by itself just then
  result_.signal = status.signal;
  result_.exit_code = status.exit_code;
  result_.seconds = seconds();
  for (Pipe* pipe : {&out_, &err_}) pipe->read.close();
}

}  // namespace lockstep
