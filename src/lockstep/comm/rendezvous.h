// Where ranks find each other: small keys and values that all of them can read. TCP between processes, memory between
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/world.h"

namespace lockstep {

/// Which job meets at a meeting point, as rank 0 says it under kOpened.
inline constexpr const char* kOpened = "opened";
struct MeetingOwner {
  std::string job, host;
  int64_t pid = 0;

  static MeetingOwner own(const std::string& job);
  static MeetingOwner read(const std::string& text);
  std::string text() const;
  std::string phrase() const;  // "Slurm job 5.0, opened by process 77 on hosta"
};

class Rendezvous {
 public:
  /// Meets at world.master_addr:master_port; rank 0 hosts unless an agent does. Throws CollectiveError naming the
  /// address and who was waited for.
  static std::shared_ptr<Rendezvous> tcp(const World& world, Clock::duration patience);
  /// For threads of one process.
  static std::shared_ptr<Rendezvous> in_process();
  ~Rendezvous();

  /// Whether this rank knows in which round of its job it meets: at once, but where a launcher's agent hosts the meeting point and
  /// keeps it when it starts ranks again. There rank 0 tells it to each rank that comes, whenever it looks around here. Throws
  /// CollectiveError, as look() does, once another round has begun.
  bool joined();
  /// Of ranks that know it. Throws InternalError else.
  void set(const std::string& key, const std::string& value);
  /// Waits until someone has set it. Throws CollectiveError after `patience`.
  std::string get(const std::string& key, Clock::duration patience);
  /// What stands there now; nullopt: nothing yet. c10d warns of every wait that passes, so whoever looks around meanwhile asks
  /// in this way. Throws CollectiveError where the meeting point is gone.
  std::optional<std::string> look(const std::string& key);

  /// As set() and get(), and for ranks that do not know their round yet, of which nothing of an earlier one may be read. Who
  /// answers does so whenever it looks around here, as long as others may ask.
  void answer(const std::string& question, const std::string& value);
  std::string ask(const std::string& question, Clock::duration patience);

  struct Impl;
  const Impl& impl() const { return *impl_; }  // for the Gloo backend, which speaks to the store itself

 private:
  explicit Rendezvous(std::unique_ptr<Impl> impl);
  void serve();
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
