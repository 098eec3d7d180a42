#include "lockstep/guard/unix_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// An abstract name: it begins with a zero byte and ends with the socket.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

int new_socket() { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }

}  // namespace

int listen_on_name(const std::string& name) {
  const auto [address, length] = address_of(name);
  const int fd = new_socket();
  constexpr int kBacklog = 256;
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(fd, kBacklog) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    throw Error(ExitCode::kInternal, fmt::format("listening for the ranks of this node: {}", why));
  }
  return fd;
}

int connect_to_name(const std::string& name) {
  const auto [address, length] = address_of(name);
  const int fd = new_socket();
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

bool send_packet(int socket, std::string_view text, int descriptor) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::optional<Packet> receive_packet(int socket, int patience_ms) {
  pollfd wait{socket, POLLIN, 0};
  if (::poll(&wait, 1, patience_ms) <= 0) return std::nullopt;
  std::array<char, kMaxPacket> buffer;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  Packet packet;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); got >= 0 && head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(head) + at, sizeof descriptor);
      if (packet.descriptor >= 0) ::close(packet.descriptor);  // one is wanted; the last one stays
      packet.descriptor = descriptor;
    }
  }
  if (got <= 0) {
    if (packet.descriptor >= 0) ::close(packet.descriptor);
    return std::nullopt;
  }
  packet.text.assign(buffer.data(), static_cast<size_t>(got));
  return packet;
}

std::pair<pid_t, bool> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return {0, false};
  return {peer.pid, peer.uid == ::geteuid() || peer.uid == 0};
}

}  // namespace lockstep
