#include "lockstep/comm/peer_names.h"

#include <dlfcn.h>
#include <netdb.h>

/// The C library's, but that a name is looked up only for who can do nothing without one.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host, socklen_t host_length, char* service,
                           socklen_t service_length, int flags) {
  static const auto real = reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  if (real == nullptr) return EAI_SYSTEM;
  if ((flags & NI_NAMEREQD) == 0) flags |= NI_NUMERICHOST | NI_NUMERICSERV;
  return real(address, length, host, host_length, service, service_length, flags);
}

namespace lockstep {

void print_peers_by_number() {}  // what brings this file into a program

}  // namespace lockstep
