// Sockets of one host whose names live in no file system, and descriptors sent over them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

namespace lockstep {

/// Packets up to this size.
inline constexpr size_t kMaxPacket = 4096;

int listen_on_name(const std::string& name);   // throws Error(kInternal)
int connect_to_name(const std::string& name);  // -1 when nobody listens

bool send_packet(int socket, std::string_view text, int descriptor = -1);

struct Packet {
  std::string text;
  int descriptor = -1;  // the receiver owns it
};
/// Nothing at the end of the connection or when the patience is over.
std::optional<Packet> receive_packet(int socket, int patience_ms);

/// The process at the other end, and whether it is of this user (or root).
std::pair<pid_t, bool> peer_of(int socket);

}  // namespace lockstep
