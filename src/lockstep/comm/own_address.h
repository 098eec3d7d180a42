// Which of this host's addresses others can reach, and which of its ports are free.
#pragma once

#include <string>

#include "lockstep/base/process.h"

namespace lockstep {

/// The address with which this host speaks to `host`; its own name may resolve to one that nobody else reaches. "" when
/// `host` cannot be resolved.
std::string own_address_towards(const std::string& host);

/// "127.0.1.1", "::1": it leads every host to itself.
bool is_loopback(const std::string& address);

/// A network interface of this host that leads out of it, and its address; empty where there is none.
struct OutwardInterface {
  std::string name, address;
};
OutwardInterface outward_interface();

/// A port that nobody listens on now; whoever wants it takes it a moment later. Throws Error.
int free_port();

/// A port that the kernel gives to nobody else while this lives. Who names it and allows it to be shared (SO_REUSEADDR), as
/// c10d's store does, may listen there.
class HeldPort {
 public:
  HeldPort();  // throws Error
  int number() const { return number_; }

 private:
  Descriptor socket_;
  int number_ = 0;
};

/// Somebody listens there already, on any of this host's addresses.
bool port_is_taken(int port);

}  // namespace lockstep
