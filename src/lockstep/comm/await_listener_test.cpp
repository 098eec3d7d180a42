#include "lockstep/comm/await_listener.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/base/process.h"
#include "lockstep/comm/own_address.h"

namespace lockstep {
namespace {

constexpr Clock::duration kLong = std::chrono::minutes(10), kShort = std::chrono::milliseconds(30);

/// The socket of whoever comes late: its port is held before, and refuses.
struct Late {
  Late() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
  }
  Descriptor socket;
  int port = 0;
};

TEST(AwaitListener, ComesBackWhenSomebodyListens) {
  Late late;
  std::atomic<bool> there{false}, came_back{false};
  std::thread waits([&] {
    await_listener("127.0.0.1", late.port, Deadline(kLong));
    EXPECT_TRUE(there) << "nobody listened yet";
    came_back = true;
  });
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(came_back);
  there = true;
  EXPECT_EQ(::listen(late.socket.get(), 1), 0);
  waits.join();
  await_listener("127.0.0.1", late.port, Deadline(kLong));  // at once
}

TEST(AwaitListener, EndsAtItsDeadline) {
  const Late late;
  const Deadline deadline(kShort);
  await_listener("127.0.0.1", late.port, deadline);
  EXPECT_TRUE(deadline.passed());
}

TEST(AwaitListener, LeavesANameThatNobodyKnowsToTheCaller) {
  await_listener("no.such.host.invalid", 1, Deadline(kLong));
}

}  // namespace
}  // namespace lockstep
