#include "lockstep/model/pickle_reader.h"

#include <array>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/test_torch_file.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using test_torch::as_bytes;
using test_torch::integer;
using test_torch::little;
using test_torch::name;
using test_torch::unicode;
using Kind = Pickle::Kind;

constexpr std::array kKnown{"collections.OrderedDict"sv, "torch.FloatStorage"sv};

/// The root as Python would print it; calls as name(arguments){items}state.
std::string shown(const Pickle& pickle, const Pickle::Node& node) {
  const auto parts = [&](const char* open, const char* close) {
    std::string out = open;
    for (size_t i = 0; i < node.parts.size(); ++i) out += (i == 0 ? "" : ", ") + shown(pickle, pickle[node.parts[i]]);
    return out + close;
  };
  switch (node.kind) {
    case Kind::kInt:
    case Kind::kBool:
      return std::to_string(node.number);
    case Kind::kText:
      return "'" + std::string(node.text) + "'";
    case Kind::kTuple:
      return parts("(", ")");
    case Kind::kList:
      return parts("[", "]");
    case Kind::kDict:
      return parts("{", "}");
    case Kind::kName:
      return std::string(node.text);
    case Kind::kPersistent:
      return "persistent" + shown(pickle, pickle[node.arguments]);
    case Kind::kCall:
      return shown(pickle, pickle[node.called]) + shown(pickle, pickle[node.arguments]) + parts("{", "}") +
             (node.state == Pickle::kNothing ? "" : " with " + shown(pickle, pickle[node.state]));
    default:
      return pickle.describe(node);
  }
}

std::string read(const std::string& bytes) {
  const Pickle pickle = read_pickle(as_bytes(bytes), "m.bin: data.pkl", kKnown);
  return shown(pickle, pickle.root());
}

std::string error_of(const std::string& bytes) {
  try {
    return "no error: " + read(bytes);
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    EXPECT_LT(std::string(e.what()).size(), 2000U);
    return e.message();
  }
}

TEST(PickleReaderTest, ReadsNumbersAndTexts) {
  EXPECT_EQ(read("\x80\x02K\xff."s), "255");
  EXPECT_EQ(read("M\xff\xff."s), "65535");
  EXPECT_EQ(read("J\xfe\xff\xff\xff."s), "-2");
  EXPECT_EQ(read("\x8a\x00."s), "0");
  EXPECT_EQ(read("\x8a\x01\xff."s), "-1");
  EXPECT_EQ(read("\x8a\x02\x00\x80."s), "-32768");
  EXPECT_EQ(read(integer(INT64_MIN) + "."), "-9223372036854775808");
  EXPECT_EQ(read("\x8b\x03\0\0\0\1\2\3."s), "197121");
  EXPECT_EQ(read("\x8a\x09" + std::string(9, '\1') + "."), "an int");
  EXPECT_EQ(read("(\x88\x89NG\0\0\0\0\0\0\0\0t."s), "(1, 0, None, a float)");
  EXPECT_EQ(read("("s + unicode("abc") + "\x8c\1d\x8d" + little(1, 8) + "eT" + little(1, 4) + "fU\1gt."),
            "('abc', 'd', 'e', 'f', 'g')");
  EXPECT_EQ(read("(B" + little(1, 4) + "aC\1a\x8e" + little(1, 8) + "a\x96" + little(1, 8) + "at."),
            "(bytes, bytes, bytes, bytes)");
}

TEST(PickleReaderTest, ReadsContainersAndTheStack) {
  EXPECT_EQ(read("]K\1a(K\2K\3e."s), "[1, 2, 3]");
  EXPECT_EQ(read("(K\1K\2l."s), "[1, 2]");
  EXPECT_EQ(read("}K\1K\2s(K\3K\4K\5K\6u."s), "{1, 2, 3, 4, 5, 6}");
  EXPECT_EQ(read("(K\1K\2d."s), "{1, 2}");
  EXPECT_EQ(read("()K\1\x85K\1K\2\x86K\1K\2K\3\x87t."s), "((), (1), (1, 2), (1, 2, 3))");
  EXPECT_EQ(read("(K\1K\2"s + "0(K\3"s + "12t."s), "(1, 1)") << "POP, POP_MARK, DUP";
  EXPECT_EQ(read("K\1(0."s), "1") << "POP of a mark";
}

TEST(PickleReaderTest, RemembersByEveryKindOfMemo) {
  EXPECT_EQ(read("(K\7q\1K\1r\2\0\0\0K\2p3\nh\1j\2\0\0\0g3\nt."s), "(7, 1, 2, 7, 1, 2)");
  EXPECT_EQ(read("\x80\x04\x95\x10\0\0\0\0\0\0\0(K\7\x94K\1\x94h\0h\1t."s), "(7, 1, 7, 1)");
  const std::string itself = "]q\0h\0a."s;
  const Pickle pickle = read_pickle(as_bytes(itself), "m.bin: data.pkl", kKnown);
  EXPECT_EQ(&pickle[pickle.root().parts.at(0)], &pickle.root()) << "a list that holds itself";
}

TEST(PickleReaderTest, NamesAndCallsAreDescribedAndNotMade) {
  EXPECT_EQ(read("ccollections\nOrderedDict\n)R(K\1K\2u}b."s), "collections.OrderedDict(){1, 2} with {}");
  EXPECT_EQ(read("\x80\x04\x8c\x0b"
                 "collections\x8c\x0bOrderedDict\x93)R."s),
            "collections.OrderedDict(){}");
  EXPECT_EQ(read("ctorch\nFloatStorage\nK\1\x86Q."s), "persistent(torch.FloatStorage, 1)");
}

TEST(PickleReaderTest, NamesThatNobodyExpectsAreRefusedWhereTheyStand) {
  const auto refused = [](const std::string& name) {
    return "m.bin: data.pkl: asks Python for " + name +
           ", which no dict of tensors needs: refused, and nothing of it was run";
  };
  const std::string call = "X\x08\0\0\0touch /x\x85R."s;
  EXPECT_EQ(error_of(name("posix", "system") + call), refused("posix.system"));
  EXPECT_EQ(error_of("\x80\x04\x8c\x02os\x8c\x06system\x93"s + call), refused("os.system"));
  EXPECT_EQ(error_of(name("builtins", "eval") + call), refused("builtins.eval"));
  EXPECT_EQ(error_of(name("collections", "OrderedDict.fromkeys") + call), refused("collections.OrderedDict.fromkeys"));
  EXPECT_EQ(error_of(name("collectionsX", "OrderedDict") + call), refused("collectionsX.OrderedDict"));
  EXPECT_EQ(error_of(name("collections", "OrderedDikt") + call), refused("collections.OrderedDikt"));
  EXPECT_EQ(error_of(name("collectionz", "OrderedDict") + call), refused("collectionz.OrderedDict"));
  EXPECT_EQ(error_of(name("", "") + call), refused("."));
  EXPECT_EQ(error_of(name("a\x1b[2J", "b") + call), refused("a\\x1b[2J.b"));
}

TEST(PickleReaderTest, OperationsThatMakeObjectsAreNotRead) {
  const std::string known = name("collections", "OrderedDict");
  for (const std::string& op : {")\x81."s, ")}\x92."s, "(icollections\nOrderedDict\n."s, "\x82\1."s, "\x83\1\0."s,
                                "\x84\1\0\0\0."s, "P1\n."s, "\x97."s, "\x8f."s, "S'a'\n."s, "I1\n."s, "\xff."s}) {
    EXPECT_NE(error_of(known + op).find("is not one of a dict of tensors"), std::string::npos) << op;
  }
  EXPECT_EQ(error_of(known + "\x81."),
            "m.bin: data.pkl: byte 25: operation 0x81 is not one of a dict of tensors in "
            "pickle's protocols 2 to 5");
  EXPECT_EQ(error_of("\x80\x01."s), "m.bin: data.pkl: byte 0: expected a pickle of protocol 2 to 5, found 1");
  EXPECT_EQ(error_of("K\1)R."s),
            "m.bin: data.pkl: byte 3: expected a call of a name with a tuple, found an int with a tuple");
  EXPECT_EQ(error_of(known + "]R."),
            "m.bin: data.pkl: byte 26: expected a call of a name with a tuple, found the name "
            "collections.OrderedDict with a list");
  EXPECT_EQ(error_of("}}b."), "m.bin: data.pkl: byte 2: a dict takes no state");
  EXPECT_EQ(error_of("]K\1K\2s."s), "m.bin: data.pkl: byte 5: a list takes no items");
}

TEST(PickleReaderTest, BrokenStacksAndMemosAreRefused) {
  for (const std::string& bytes : {"."s, "0."s, "2."s, "a."s, "s."s, "R."s, "b."s, "Q."s, "t."s, "1."s, "K\1("s + "a."s,
                                   "\x93."s, "q\0."s, "\x94."s,
                                   "(K\1(0"
                                   "0"
                                   "0."s,
                                   "\x85."s, "K\1\x86."s, "(."s}) {
    EXPECT_NE(error_of(bytes).find("m.bin: data.pkl: byte "), std::string::npos) << bytes;
  }
  EXPECT_EQ(error_of("h\5."s), "m.bin: data.pkl: byte 0: remembers value 5, which nothing has kept");
  EXPECT_EQ(error_of("}(K\1u."s), "m.bin: data.pkl: byte 4: a key without a value");
  EXPECT_EQ(error_of("g-1\n."s), "m.bin: data.pkl: byte 0: expected a number of at most nine digits");
  EXPECT_EQ(error_of("g99999999999999999999\n."s), "m.bin: data.pkl: byte 0: expected a number of at most nine digits");
}

TEST(PickleReaderTest, LengthsThatLieAreRefused) {
  EXPECT_EQ(error_of(""), "m.bin: data.pkl: byte 0: expected 1 bytes more, found 0: truncated");
  EXPECT_EQ(error_of("X" + little(UINT32_MAX, 4) + "abc"),
            "m.bin: data.pkl: byte 0: expected 4294967295 bytes more, found 3: truncated");
  EXPECT_EQ(error_of("\x8d" + little(UINT64_MAX, 8) + "abc"),
            "m.bin: data.pkl: byte 0: expected 18446744073709551615 bytes more, found 3: truncated");
  EXPECT_EQ(error_of("\x8b" + little(UINT32_MAX, 4) + "abc"),
            "m.bin: data.pkl: byte 0: expected 4294967295 bytes more, found 3: truncated");
  EXPECT_NE(error_of("cabc").find("truncated"), std::string::npos);
}

TEST(PickleReaderTest, WhatGrowsWithoutEndIsStopped) {
  const std::string front = "m.bin: data.pkl: byte ";
  std::string lists;
  for (int i = 0; i < (20 << 20); ++i) lists += "]0";
  EXPECT_NE(error_of(lists + "N.").find(": describes more than 512.00 MiB"), std::string::npos);
  EXPECT_EQ(error_of("N" + std::string(2'000'000, '2') + "."),
            front + "1000000: more than 1000000 values on the stack");
  EXPECT_EQ(error_of(std::string(2'000'000, '(') + "."), front + "1000000: more than 1000000 marks on the stack");
  EXPECT_EQ(error_of(std::string((64 << 20) + 1, ']')), front + "0: expected at most 64.00 MiB, found 64.00 MiB");
  // Nested deep: nothing recurses, so that it is an ordinary value.
  EXPECT_EQ(error_of("N" + std::string(900'000, '\x85') + "0N."), "no error: None");
  // A tuple of a thousand of the last one, and so on: Python would share them too, and print 10^27 parts.
  std::string doubled = "N";
  for (int i = 0; i < 9; ++i)
    doubled += "q\1(" + [] {
      std::string gets;
      for (int k = 0; k < 1000; ++k) gets += "h\1";
      return gets;
    }() + "t";
  EXPECT_EQ(error_of(doubled + "0N."), "no error: None");
}

TEST(PickleReaderTest, ChangedAtRandomItAnswersOrRefuses) {
  constexpr uint32_t kSeed = 20251123;
  std::mt19937 random(kSeed);
  const std::string good = test_torch::dict(unicode("a") + test_torch::tensor({.size = {2, 3}, .stride = {3, 1}}) +
                                            unicode("b") + "]K\1aN\x88");
  const auto names = std::to_array<std::string_view>(
      {"collections.OrderedDict", "torch.FloatStorage", "torch._utils._rebuild_tensor_v2"});
  int accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = good;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 6);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 20));
      }
      if (bytes.empty()) bytes = ".";
    }
    const std::vector<char> exact(bytes.begin(), bytes.end());
    try {
      (void)read_pickle(std::as_bytes(std::span<const char>(exact)), "m.bin", names);
      ++accepted;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(accepted, 100) << "seed " << kSeed;
}

}  // namespace
}  // namespace lockstep
