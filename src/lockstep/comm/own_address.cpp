#include "lockstep/comm/own_address.h"

#include <array>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {

std::string own_address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* one = found; one != nullptr && address.empty(); one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&  // of a datagram socket: no packet leaves
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      address = text.data();
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  return address;
}

}  // namespace lockstep
