#include "lockstep/base/sha256.h"

#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string digest(std::string_view text) { return hex(Sha256().add(text).finish()); }

std::string mac(std::string_view key, std::string_view message) { return hex(MacKey(key).mac(message)); }

// The examples of FIPS 180-4.
TEST(Sha256, IsThePublishedOne) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Of the digests of texts of 0 to 299 bytes, byte i of text n being 7 i + n: what Python's hashlib makes of them.
TEST(Sha256, HoldsAtEveryLength) {
  Sha256 all;
  for (size_t n = 0; n < 300; ++n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += static_cast<char>(i * 7 + n);
    const Digest one = Sha256().add(text).finish();
    all.add({reinterpret_cast<const char*>(one.data()), one.size()});
    Sha256 cut;  // the same in parts
    cut.add(std::string_view(text).substr(0, n / 3)).add(std::string_view(text).substr(n / 3));
    EXPECT_EQ(cut.finish(), one) << n;
  }
  EXPECT_EQ(hex(all.finish()), "d5238871a46ac4a1a75ac3fb19d645b0b3b9e5f35f5f720e2b240d605c6b694e");
}

// Cases 1, 2, 3 and 6 of RFC 4231.
TEST(MacKey, IsThePublishedHmac) {
  EXPECT_EQ(mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(SameBytes, IsSameTextAndSameLength) {
  EXPECT_TRUE(same_bytes("", ""));
  EXPECT_TRUE(same_bytes("token", "token"));
  EXPECT_FALSE(same_bytes("token", "toker"));
  EXPECT_FALSE(same_bytes("token", "toke"));
  EXPECT_FALSE(same_bytes("token", "token0"));
  EXPECT_FALSE(same_bytes("", "token"));
}

}  // namespace
}  // namespace lockstep
