#include "lockstep/watch/tfrecord.h"

#include <string>

#include <gtest/gtest.h>

#include "lockstep/watch/crc32c.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

TEST(Crc32c, GivesTheKnownChecksums) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

TEST(TfRecord, FramesARecordByteForByte) {
  // Recorded from tensorboard's RecordWriter.
  EXPECT_EQ(frame_record("abc"),
            "\x03\0\0\0\0\0\0\0\xB0\x99I\x0E"s
            "abcnW\xF1!"s);
}

TEST(TfRecord, EncodesAScalarEventByteForByte) {
  // wall_time 1.0, step 300, {tag: "a", simple_value: 0.5}
  EXPECT_EQ(scalar_event(1.0, 300, "a", 0.5F),
            "\x09\0\0\0\0\0\0\xF0\x3F\x10\xAC\x02\x2A\x0A\x0A\x08\x0A\x01"s
            "a\x15\0\0\0\x3F"s);
}

TEST(TfRecord, BeginsAFileWithItsVersion) {
  EXPECT_EQ(file_version_event(1.0),
            "\x09\0\0\0\0\0\0\xF0\x3F\x1A\x0D"s
            "brain.Event:2"s);
}

}  // namespace
}  // namespace lockstep
