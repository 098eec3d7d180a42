#include "lockstep/base/text_format.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TextFormat, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536LL << 20), "1.50 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(format_bytes(int64_t{1} << 60), "1048576.00 TiB");
}

TEST(TextFormat, BytesNeverRoundUpToAThousandAndTwentyFour) { EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB"); }

TEST(TextFormat, Durations) {
  EXPECT_EQ(format_duration(0), "0ms");
  EXPECT_EQ(format_duration(0.85), "850ms");
  EXPECT_EQ(format_duration(1.25), "1.2s");
  EXPECT_EQ(format_duration(42), "42s");
  EXPECT_EQ(format_duration(125), "2m 5s");
  EXPECT_EQ(format_duration(3723), "1h 2m 3s");
  EXPECT_EQ(format_duration(360'000), "100h 0m 0s");
}

TEST(TextFormat, DurationsCarryWhenRounded) {
  EXPECT_EQ(format_duration(0.9997), "1.0s");
  EXPECT_EQ(format_duration(9.97), "10s");
  EXPECT_EQ(format_duration(59.7), "1m 0s");
  EXPECT_EQ(format_duration(3599.9), "1h 0m 0s");
}

TEST(TextFormat, ATimeThatIsNotKnownIsAQuestionMark) {
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(TextFormat, Counts) {
  EXPECT_EQ(format_count(960), "960");
  EXPECT_EQ(format_count(9'999), "9999");
  EXPECT_EQ(format_count(12'345), "12.3K");
  EXPECT_EQ(format_count(31'500'000), "31.5M");
  EXPECT_EQ(format_count(7'620'000'000), "7.62B");
  EXPECT_EQ(format_count(999'999), "1.0M");
  EXPECT_EQ(format_count(999'999'999), "1.00B");
}

TEST(TextFormat, Shapes) {
  EXPECT_EQ(format_shape(std::vector<int64_t>{2, 58, 64}), "[2, 58, 64]");
  EXPECT_EQ(format_shape(std::vector<int64_t>{}), "[]");
}

TEST(TextFormat, SplitKeepsEmptyPartsAndJoinUndoesIt) {
  EXPECT_EQ(split("a,,b,", ','), (std::vector<std::string>{"a", "", "b", ""}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(join(split("a,,b,", ','), ","), "a,,b,");
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
}

TEST(TextFormat, ALongTextLosesItsMiddleBetweenCharacters) {
  EXPECT_EQ(cut_text("short"), "short");
  EXPECT_EQ(cut_text("0123456789abcdefghij", 8), "0123… (20 bytes) …ij");
  EXPECT_EQ(cut_text("ääääääääää", 9), "ää… (20 bytes) …ä");
}

TEST(TextFormat, BytesThatATerminalWouldObeyAreSpelled) {
  EXPECT_EQ(plain_text("model.norm ~"), "model.norm ~");
  EXPECT_EQ(plain_text(std::string_view("a\x1b[2J\0\xff", 7)), "a\\x1b[2J\\x00\\xff");
  EXPECT_EQ(plain_text("0123456789", 4), "0123… (10 bytes)");
  EXPECT_TRUE(is_plain(" ~") && is_plain(""));
  EXPECT_FALSE(is_plain("\x7f") || is_plain("\n") || is_plain("ä"));
}

TEST(TextFormat, TextOnATerminalKeepsLinesAndCharactersAlone) {
  EXPECT_EQ(shown_text("a\tb\nÄ → 🚀"), "a\tb\nÄ → 🚀");
  EXPECT_EQ(shown_text("\x1b]0;x\a\r\x7f"), "\\x1b]0;x\\x07\\x0d\\x7f");
  EXPECT_EQ(shown_text("\xc2\x9b"
                       "2J\x9b"
                       "3J\xc2\xa0"),
            "\\x9b2J\\x9b3J\xc2\xa0")
      << "as one character, and as a byte alone";
  EXPECT_EQ(shown_text(std::string("\0\xc3", 2)), std::string("\\x00\xc3"));
}

TEST(TextFormat, StartsWithAny) {
  const std::vector<std::string> prefixes = {"visual.", "audio."};
  EXPECT_TRUE(starts_with_any("audio.conv1", prefixes));
  EXPECT_FALSE(starts_with_any("model.audio.conv1", prefixes));
  EXPECT_FALSE(starts_with_any("x", std::vector<std::string>{}));
}

}  // namespace
}  // namespace lockstep
