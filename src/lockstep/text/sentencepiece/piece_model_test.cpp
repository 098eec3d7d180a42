#include "lockstep/text/sentencepiece/piece_model.h"

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/text/sentencepiece/charsmap.h"
#include "lockstep/text/sentencepiece/piece_text.h"
#include "lockstep/text/sentencepiece/test_piece_file.h"
#include "lockstep/text/sentencepiece/wire_reader.h"

namespace lockstep {
namespace {

using test_pieces::File;
using Ids = std::vector<int32_t>;

PieceModel model_of(const File& file) { return PieceModel(parse_piece_model(file.bytes(), "m")); }

Ids encode(const PieceModel& model, const std::string& text) {
  PieceIds out;
  model.encode(text, true, out);
  return out.ids;
}

Ids encode(const File& file, const std::string& text) { return encode(model_of(file), text); }

/// What reading these bytes is refused with; "" when they are read.
std::string refusal(const std::string& bytes) {
  try {
    PieceModel(parse_piece_model(bytes, "m")).table();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_LT(std::string(error.what()).size(), 3000U);
    return error.what();
  }
  return "";
}

std::string array_of(const std::vector<uint32_t>& units) {
  std::string out;
  for (const uint32_t unit : units) {
    for (unsigned i = 0; i < 4; ++i) out += static_cast<char>(unit >> (8 * i));
  }
  return out;
}

std::string charsmap_of(const std::vector<uint32_t>& units, const std::string& replacements) {
  return array_of({static_cast<uint32_t>(4 * units.size())}) + array_of(units) + replacements;
}

TEST(WireReader, ReadsFieldsAndPassesOverOthers) {
  const std::string bytes = test_pieces::number_field(1, 1ULL << 40) + test_pieces::bytes_field(900, "abc") +
                            test_pieces::float_field(3, 1.5F) + "\x21" + "12345678";
  WireReader reader(bytes, "m");
  EXPECT_EQ(varint_of(reader.next().value(), "m"), 1ULL << 40);
  const auto text = reader.next().value();
  EXPECT_EQ(text.number, 900U);
  EXPECT_EQ(bytes_of(text, "m"), "abc");
  EXPECT_THROW(varint_of(text, "m"), UserError);
  EXPECT_EQ(float_of(reader.next().value(), "m"), 1.5F);
  EXPECT_EQ(reader.next().value().value, 0x3837363534333231ULL);
  EXPECT_FALSE(reader.next());
}

TEST(WireReader, NeverReadsBeyondTheMessage) {
  const std::string huge = test_pieces::varint(1 << 3 | 2) + test_pieces::varint(1'000'000'000'000);
  for (const std::string& bytes :
       {huge, huge + "abc", std::string("\x08\xFF", 2), std::string(11, '\xFF'),
        std::string("\x08") + std::string(10, '\xFF'), std::string("\x0D\x01", 2), std::string("\x09\x01", 2),
        std::string("\x0B"), std::string("\x0C"), std::string("\x0F"), std::string(1, '\0'), std::string("\x0A")}) {
    WireReader reader(bytes, "m");
    EXPECT_THROW(while (reader.next()){}, UserError) << testing::PrintToString(bytes);
  }
}

TEST(PieceModel, TheBestScoreMergesFirstAndTheLeftmostAmongEquals) {
  File file;
  file.add("a", -9).add("b", -9).add("ab", -2).add("ba", -1).add("aa", -3).add("aab", -1);  // 3 4 5 6 7 8
  EXPECT_EQ(encode(file, "aba"), (Ids{3, 6}));
  EXPECT_EQ(encode(file, "aaa"), (Ids{7, 3}));
  EXPECT_EQ(encode(file, "aab"), (Ids{8}));  // "ab" comes before "aa", which is no way to "aab"
  File equal;
  equal.add("a", 0).add("b", 0).add("ab", 0).add("ba", 0);
  EXPECT_EQ(encode(equal, "bab"), (Ids{6, 4}));
}

TEST(PieceModel, UserDefinedSymbolsStandApart) {
  File file;
  file.add("a", -9).add("b", -9).add("ab", -1).add("bb", -1);                         // 3 4 5 6
  file.add("ba", 0, PieceType::kUserDefined).add("bab", 0, PieceType::kUserDefined);  // 7 8
  EXPECT_EQ(encode(file, "aba"), (Ids{3, 7}));
  EXPECT_EQ(encode(file, "abab"), (Ids{3, 8}));   // the longest one
  EXPECT_EQ(encode(file, "abbab"), (Ids{5, 8}));  // what stands before it merges
}

TEST(PieceModel, UnusedPiecesAreUndone) {
  File file;
  file.add("a", -9).add("b", -9).add("c", -9).add("ab", -1, PieceType::kUnused).add("abc", -2);  // 3 4 5 6 7
  EXPECT_EQ(encode(file, "ab"), (Ids{3, 4}));
  EXPECT_EQ(encode(file, "abc"), (Ids{7}));
  file.add("d", -9, PieceType::kUnused).add("abcd", -3, PieceType::kUnused);
  EXPECT_EQ(encode(file, "abcd"), (Ids{7, 8}));  // one character cannot be undone
}

TEST(PieceModel, UnknownNeighboursAreOneAndBytesWhereThereAreSome) {
  File file;
  file.add("a", -1);
  PieceIds out;
  model_of(file).encode("aéèa€", true, out);
  EXPECT_EQ(out.ids, (Ids{3, 0, 3, 0}));
  ASSERT_EQ(out.unknown.size(), 2U);
  EXPECT_EQ(out.unknown[0].text, "éè");
  EXPECT_EQ(out.unknown[1].at, 3U);
  EXPECT_EQ(encode(file.add_bytes(), "aé"), (Ids{3, 4 + 0xC3, 4 + 0xA9}));
}

TEST(PieceModel, APieceAcrossTwoWordsIsMade) {
  File file;
  file.add("▁", -9).add("a", -9).add("b", -9).add("a▁", -1).add("▁b", -2);  // 3 4 5 6 7
  EXPECT_EQ(encode(file, "a b"), (Ids{6, 5}));
  EXPECT_EQ(encode(file, "b b"), (Ids{5, 7}));
  EXPECT_EQ(encode(file, "a b"), (Ids{6, 5}));  // from the words that are remembered
}

TEST(PieceModel, SpacesAreTakenAwayWhereTheModelSaysSo) {
  File file;
  file.normalizer.clear();  // the format's defaults
  file.add("▁", -9).add("a", -9);
  EXPECT_EQ(encode(file, "  a   a "), (Ids{3, 4, 3, 4}));
  EXPECT_EQ(encode(file, "   "), (Ids{}));
  file.normalizer = test_pieces::number_field(4, 0);
  EXPECT_EQ(encode(file, " a"), (Ids{3, 3, 4}));
}

TEST(PieceModel, ALongTextWithoutSpacesTakesNoSquareOfItsLength) {
  File file;
  for (size_t size = 1; size <= 64; size *= 2) file.add(std::string(size, 'a'), -static_cast<float>(size));
  const PieceModel model = model_of(file);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(encode(model, std::string(1 << 20, 'a')), Ids(1 << 14, 9));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Charsmap, ReplacesTheLongestStart) {
  // A trie of "a" -> "x": the root's offset is 128, so that "a" stands at 128 ^ 97, and its value at the end of its offset.
  std::vector<uint32_t> units(256, 0);
  units[0] = 128U << 10;
  units[128 ^ 97] = (1U << 8) | 97U | (4U << 10);
  units[(128 ^ 97) ^ 4] = 0x80000000U | 2U;
  const Charsmap map(charsmap_of(units, std::string("q\0x\0", 4)), "m");
  EXPECT_EQ(map.longest("ab").size, 1U);
  EXPECT_EQ(map.longest("ab").replacement, "x");
  EXPECT_EQ(map.longest("b").size, 0U);
  EXPECT_EQ(map.longest("").size, 0U);
}

TEST(Charsmap, OddOffsetsStayWithinTheArray) {
  for (const uint32_t unit : {0xFFFFFFFFU, 0x7FFFFFFFU, 0x00000361U, 0xFFFFFF61U, 0U}) {
    std::vector<uint32_t> units(300, unit);
    const Charsmap map(charsmap_of(units, "x"), "m");
    for (const char* text : {"a", "aaaa", "\xFF\xFF", "\xE2\x96\x81"}) EXPECT_LE(map.longest(text).size, 4U);
  }
}

TEST(Charsmap, ATextThatGrowsWithoutEndIsRefused) {
  std::vector<uint32_t> units(256, 0);
  units[0] = 128U << 10;
  units[128 ^ 97] = (1U << 8) | 97U | (4U << 10);
  units[(128 ^ 97) ^ 4] = 0x80000000U;
  File file;
  file.add("x", 0);
  file.normalizer += test_pieces::bytes_field(2, charsmap_of(units, std::string(100'000, 'x')));
  EXPECT_THROW(encode(file, "aaaa"), UserError);
}

TEST(ModelFile, WhatIsNoModelIsRefused) {
  const std::string whole = File().add("a", -1).add("b", -2).bytes();
  EXPECT_EQ(refusal(whole), "");
  for (size_t size = 1; size < whole.size(); ++size) refusal(whole.substr(0, size));  // no crash, whatever is left
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("version https://git-lfs.github.com/spec/v1\n").find("git lfs pull"), std::string::npos);
  EXPECT_NE(refusal("IQ== 0\nIg== 1\n").find("tiktoken"), std::string::npos);
  EXPECT_NE(refusal("{\"model\": 1}"), "");
}

TEST(ModelFile, PiecesThatCannotStandAreRefused) {
  constexpr auto kNan = std::numeric_limits<float>::quiet_NaN();
  const auto said = [](const File& file, const std::string& words) {
    const std::string why = refusal(file.bytes());
    EXPECT_NE(why.find(words), std::string::npos) << why;
  };
  said(File().add("a", 0).add("a", 0), "piece 4 (\"a\"): an earlier piece is the same text");
  said(File().add("", 0), "1 to 512 bytes, found 0");
  said(File().add(std::string(513, 'a'), 0), "found 513");
  said(File().add("\xFF", 0), "expected UTF-8");
  said(File().add("a", kNan), "expected a finite score");
  said(File().add("a", std::numeric_limits<float>::infinity()), "expected a finite score");
  said(File().add("a", 0, static_cast<PieceType>(9)), "a type from 1 to 6, found 9");
  said(File().add("<0x41>", 0, PieceType::kByte), "byte_fallback is false");
  said(File().add_bytes().add("<0x4>", 0, PieceType::kByte), "the name of a byte");
  said(File().add("<unk2>", 0, PieceType::kUnknown), "one unknown piece (<unk>), found 2");
  File file;
  file.trainer += test_pieces::number_field(35, 1);
  said(file, "<0x00> is missing");
}

TEST(ModelFile, ModelsOfOtherKindsAreNamed) {
  const auto refused = [](const std::string& trainer) { return refusal(File{.trainer = trainer}.bytes()); };
  EXPECT_NE(refused("").find("expected BPE, found unigram"), std::string::npos);
  EXPECT_NE(refused(test_pieces::number_field(3, 3)).find("found word"), std::string::npos);
  EXPECT_NE(refused(test_pieces::number_field(3, 77)).find("found 77"), std::string::npos);
  EXPECT_NE(refused(test_pieces::number_field(3, 2) + test_pieces::number_field(24, 1)).find("whitespace_as_suffix"),
            std::string::npos);
  File file;
  const std::string rules = test_pieces::bytes_field(5, test_pieces::bytes_field(2, charsmap_of({0}, "x")));
  EXPECT_NE(refusal(file.bytes() + rules).find("denormalizer_spec"), std::string::npos);
}

TEST(PieceText, BytesAreCharactersOnceTheyAreWhole) {
  const PieceModel model = model_of(File().add("▁", 0).add("a", 0).add_bytes());
  PieceText text(model);
  const auto spell = [&](const std::vector<std::string>& pieces) {
    std::string out;
    for (const std::string& piece : pieces) out += text.push(piece);
    return out;
  };
  EXPECT_EQ(spell({"<0xE2>", "<0x82>"}), "");
  EXPECT_EQ(spell({"<0xAC>"}), "€");
  EXPECT_EQ(spell({"<0xE2>", "<0x82>"}), "");
  EXPECT_EQ(spell({"a"}), "\xEF\xBF\xBD\xEF\xBF\xBD\x61");
  EXPECT_EQ(spell({"▁", "<unk>"}), "  \xE2\x81\x87 ");
  EXPECT_EQ(spell({"</s>", "<0xFF>"}), "\xEF\xBF\xBD");
  EXPECT_EQ(text.finish(), "");
}

}  // namespace
}  // namespace lockstep
