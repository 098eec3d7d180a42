#include "lockstep/data/encode_wav.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

TEST(EncodeWav, TheHeaderSaysRateChannelsAndSizes) {
  EXPECT_EQ(encode_wav("\1\2\3\4"sv, 16000, 2),
            "RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\1\0\2\0\x80\x3e\0\0\0\xfa\0\0\4\0\x10\0"
            "data\4\0\0\0\1\2\3\4"sv);
}

}  // namespace
}  // namespace lockstep
