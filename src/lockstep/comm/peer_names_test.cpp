#include "lockstep/comm/peer_names.h"

#include <array>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

namespace lockstep {
namespace {

TEST(PeerNames, AreNumbersForEveryLibraryOfTheProgram) {
  print_peers_by_number();
  // Where LibTorch's own call leads: the first that the program's libraries have of that name.
  const auto found = reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_DEFAULT, "getnameinfo"));
  ASSERT_NE(found, nullptr);
  sockaddr_in peer{};  // one whose name every machine knows without asking anybody
  peer.sin_family = AF_INET;
  peer.sin_port = htons(53);
  ASSERT_EQ(::inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr), 1);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  ASSERT_EQ(found(reinterpret_cast<const sockaddr*>(&peer), sizeof peer, host.data(), host.size(), service.data(),
                  service.size(), /*flags=*/0),
            0);
  EXPECT_STREQ(host.data(), "127.0.0.1") << "not localhost";
  EXPECT_STREQ(service.data(), "53") << "not domain";
}

}  // namespace
}  // namespace lockstep
