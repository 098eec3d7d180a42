#include "lockstep/comm/rank_output.h"

#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr size_t kLongestLine = size_t{64} << 10;  // what has no end by then is written as it is

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;  // nobody reads any more
    if (n > 0) done += static_cast<size_t>(n);
  }
}

}  // namespace

RankOutput::RankOutput(int rank, int read_fd, int target_fd)
    : prefix_(fmt::format("[rank {}] ", rank)), read_fd_(read_fd), target_fd_(target_fd) {
  ::fcntl(read_fd_, F_SETFL, ::fcntl(read_fd_, F_GETFL) | O_NONBLOCK);
}

RankOutput::RankOutput(RankOutput&& other) noexcept
    : prefix_(std::move(other.prefix_)),
      held_(std::move(other.held_)),
      read_fd_(std::exchange(other.read_fd_, -1)),
      target_fd_(other.target_fd_) {}

RankOutput::~RankOutput() {
  if (read_fd_ >= 0) ::close(read_fd_);
}

void RankOutput::pump() {
  std::array<char, 16384> buffer;
  while (read_fd_ >= 0) {
    const ssize_t n = ::read(read_fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      ::close(read_fd_);
      read_fd_ = -1;
      break;
    }
    held_.append(buffer.data(), static_cast<size_t>(n));
    write_lines(false);
  }
}

void RankOutput::finish() {
  pump();
  write_lines(true);
}

void RankOutput::write_lines(bool all) {
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = held_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    out += prefix_ + held_.substr(begin, end + 1 - begin);
  }
  if (begin < held_.size() && (all || held_.size() - begin > kLongestLine)) {
    out += prefix_ + held_.substr(begin) + "\n";
    begin = held_.size();
  }
  held_.erase(0, begin);
  write_all(target_fd_, out);
}

}  // namespace lockstep
