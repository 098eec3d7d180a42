#include "lockstep/comm/await_listener.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/process.h"

namespace lockstep {
namespace {

constexpr Clock::duration kSoonest = std::chrono::milliseconds(2), kLatest = std::chrono::milliseconds(100);

/// 0: it is there; ECONNREFUSED: not yet.
int try_to_connect(const addrinfo& where, const Deadline& deadline) {
  const Descriptor fd(::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return errno;
  if (::connect(fd.get(), where.ai_addr, where.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  constexpr int64_t kAnswers = 1000;  // a host that says nothing is left to c10d
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()).count();
  pollfd done{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&done, 1, static_cast<int>(std::min<int64_t>(left, kAnswers))) != 1) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

void await_listener(const std::string& host, int port, const Deadline& deadline) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (Clock::duration pause = kSoonest; !deadline.passed(); pause = std::min(2 * pause, kLatest)) {
    bool refused = false;
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      const int error = try_to_connect(*one, deadline);
      if (error == 0) return;
      refused = refused || error == ECONNREFUSED;
    }
    if (!refused) return;
    std::this_thread::sleep_for(std::min(pause, deadline.left()));
  }
}

}  // namespace lockstep
