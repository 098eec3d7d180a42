// Where ranks find each other: small keys and values that all of them can read. TCP between processes, memory between
// threads.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/world.h"

namespace lockstep {

class Rendezvous {
 public:
  /// Meets at world.master_addr:master_port; rank 0 hosts unless an agent does. Throws CollectiveError naming the
  /// address and who was waited for.
  static std::shared_ptr<Rendezvous> tcp(const World& world, Clock::duration patience);
  /// For threads of one process.
  static std::shared_ptr<Rendezvous> in_process();
  ~Rendezvous();

  void set(const std::string& key, const std::string& value);
  /// Waits until someone has set it. Throws CollectiveError after `patience`.
  std::string get(const std::string& key, Clock::duration patience);
  /// What stands there now; nullopt: nothing yet. c10d warns of every wait that passes, so whoever looks around meanwhile asks
  /// in this way. Throws CollectiveError where the meeting point is gone.
  std::optional<std::string> look(const std::string& key);

  struct Impl;
  const Impl& impl() const { return *impl_; }  // for the Gloo backend, which speaks to the store itself

 private:
  explicit Rendezvous(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
