#include "lockstep/comm/own_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/base/process.h"

namespace lockstep {
namespace {

bool can_listen(int port, bool shares) {
  const Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int reuse = shares ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         ::listen(fd.get(), 1) == 0;
}

TEST(OwnAddress, WhatLeadsBackToTheHostIsKnown) {
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1"}) EXPECT_TRUE(is_loopback(own)) << own;
  for (const char* other : {"10.127.0.1", "fe80::1", "", "1127.0.0.1"}) EXPECT_FALSE(is_loopback(other)) << other;
  EXPECT_TRUE(is_loopback(own_address_towards("127.0.1.1"))) << own_address_towards("127.0.1.1");
  const OutwardInterface out = outward_interface();
  EXPECT_FALSE(is_loopback(out.address)) << out.address;
  EXPECT_EQ(out.name.empty(), out.address.empty());
}

TEST(HeldPort, IsForThoseWhoShareIt) {
  const HeldPort port;
  EXPECT_FALSE(port_is_taken(port.number()));
  EXPECT_FALSE(can_listen(port.number(), /*shares=*/false)) << "whoever wants any port at all";
  EXPECT_TRUE(can_listen(port.number(), /*shares=*/true));
}

}  // namespace
}  // namespace lockstep
