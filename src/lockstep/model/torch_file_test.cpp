#include "lockstep/model/torch_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/model/test_torch_file.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using test_torch::as_bytes;
using test_torch::call;
using test_torch::dict;
using test_torch::file_of;
using test_torch::integer;
using test_torch::name;
using test_torch::ordered_dict;
using test_torch::tensor;
using test_torch::tuple;
using test_torch::unicode;

const std::string kData(24, '\1');                               // six floats
constexpr std::array kProtocol2{std::byte{0x80}, std::byte{2}};  // how a pickle of protocol 2 begins

std::string error_of_file(const std::string& bytes, bool with_hint = false) {
  try {
    (void)parse_torch_file(as_bytes(bytes), "m.bin");
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    EXPECT_LT(std::string(e.what()).size(), 3000U);
    return with_hint ? e.what() : e.message();
  }
  return "no error";
}
std::string error_of(const std::string& pickle) { return error_of_file(file_of(pickle, kData)); }
std::string error_of_tensor(const test_torch::Tensor2& t) { return error_of(dict(unicode("w") + tensor(t))); }

std::vector<StoredTensor> read(const std::string& pickle) {
  return parse_torch_file(as_bytes(file_of(pickle, kData)), "m.bin");
}

/// "name dtype[shape] bytes from the storage's begin, strides".
std::string shown(const StoredTensor& stored, size_t storage) {
  std::string out = stored.spec.name + " " + stored.spec.describe() + " " + std::to_string(stored.begin - storage) +
                    "-" + std::to_string(stored.end - storage);
  for (const int64_t stride : stored.strides) out += " " + std::to_string(stride);
  return out;
}
/// "name dtype[shape] strides: values", of numbers that are small and whole.
std::string with_values(const StoredTensor& stored, std::span<const std::byte> file) {
  std::string out = stored.spec.name + " " + stored.spec.describe();
  for (const int64_t stride : stored.strides) out += " " + std::to_string(stride);
  out += ":";
  const Tensor values = empty(stored.spec.shape, stored.spec.dtype);
  copy_elements(stored, file, 0,
                {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(stored.spec.bytes())});
  const Tensor numbers = to_dtype(values, Dtype::kF64).contiguous();
  for (int64_t i = 0; i < numbers.numel(); ++i) out += fmt::format(" {}", numbers.data_ptr<double>()[i]);
  return out;
}
std::string shown(const std::string& value) {
  const std::string bytes = file_of(dict(unicode("w") + value), kData);
  return shown(parse_torch_file(as_bytes(bytes), "m.bin").at(0), bytes.find(kData));
}

TEST(TorchFileTest, TensorsAreRangesOfTheFile) {
  EXPECT_EQ(shown(tensor({.size = {2, 3}, .stride = {3, 1}})), "w f32[2, 3] 0-24");
  EXPECT_EQ(shown(tensor({.size = {3}, .stride = {1}, .offset = 2})), "w f32[3] 8-20");
  EXPECT_EQ(shown(tensor({.size = {}, .stride = {}, .offset = 5})), "w f32[] 20-24");
  EXPECT_EQ(shown(tensor({.size = {3, 2}, .stride = {1, 3}})), "w f32[3, 2] 0-24 1 3");
  EXPECT_EQ(shown(tensor({.size = {2, 2}, .stride = {3, 1}, .offset = 1})), "w f32[2, 2] 4-24 3 1");
  EXPECT_EQ(shown(tensor({.size = {1, 6}, .stride = {99, 1}})), "w f32[1, 6] 0-24")
      << "a dimension of one has no stride";
  EXPECT_EQ(shown(tensor({.size = {4, 6}, .stride = {0, 1}})), "w f32[4, 6] 0-24 0 1") << "expanded";
  EXPECT_EQ(shown(tensor({.size = {0, 4}, .stride = {4, 1}, .offset = 77})), "w f32[0, 4] 0-0");
  EXPECT_EQ(shown(tensor({.size = {12}, .stride = {1}, .numel = 12, .storage = "BFloat16Storage"})), "w bf16[12] 0-24");
  EXPECT_EQ(shown(tensor({.size = {3}, .stride = {1}, .numel = 3, .storage = "LongStorage"})), "w i64[3] 0-24");
}

TEST(TorchFileTest, ParametersTypesAndOrderedDictsAreLookedThrough) {
  const test_torch::Tensor2 t{.size = {6}, .stride = {1}};
  const std::string parameter = call(name("torch._utils", "_rebuild_parameter"), tensor(t) + "\x88" + ordered_dict());
  EXPECT_EQ(shown(parameter), "w f32[6] 0-24");
  EXPECT_EQ(shown(call(name("torch._utils", "_rebuild_parameter_with_state"),
                       tensor(t) + "\x88" + ordered_dict() + "}" + unicode("tag") + "K\1s")),
            "w f32[6] 0-24");
  EXPECT_EQ(shown(call(name("torch._tensor", "_rebuild_from_type_v2"), name("torch._utils", "_rebuild_tensor_v2") +
                                                                           name("torch", "Tensor") +
                                                                           tuple(test_torch::arguments(t)) + "}")),
            "w f32[6] 0-24");
  // v3: a storage of bytes, and the dtype said apart.
  const test_torch::Tensor2 bytes{
      .size = {2}, .stride = {1}, .offset = 1, .numel = 24, .module = "torch.storage", .storage = "UntypedStorage"};
  EXPECT_EQ(
      shown(call(name("torch._utils", "_rebuild_tensor_v3"), test_torch::arguments(bytes) + name("torch", "float64"))),
      "w f64[2] 8-24");
  EXPECT_EQ(error_of(dict(unicode("w") + call(name("torch._utils", "_rebuild_tensor_v3"),
                                              test_torch::arguments(bytes) + name("torch", "float8_e4m3fn")))),
            "m.bin: tensor w: dtype torch.float8_e4m3fn; expected float32, bfloat16, float16 or float64");
  const std::string size = call(name("torch", "Size"), tuple(integer(6)));
  std::string sized = tensor(t);
  sized.replace(sized.find(tuple(integer(6))), tuple(integer(6)).size(), size);
  EXPECT_EQ(shown(sized), "w f32[6] 0-24");

  const auto all = read("\x80\x02" + ordered_dict() + "(" + unicode("a") + tensor(t) + unicode("b") + tensor(t) + "u}" +
                        unicode("_metadata") + "Nsb.");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].begin, all[1].begin) << "tied: two names of the same bytes";
  EXPECT_TRUE(read(dict("")).empty());
}

/// Files that torch 2.11 wrote (tests/oracles/make_torch_files.py): "name dtype[shape] strides: values".
TEST(TorchFileTest, WhatTorchWroteIsRead) {
  const std::vector<std::string> expected{
      "linear.weight f32[2, 3]: 0 1 2 3 4 5",
      "linear.bias f32[2]: 0 1",
      "norm.num_batches_tracked i64[]: 7",
      "half f16[4]: 0 1 2 3",
      "brain bf16[4]: 0 1 2 3",
      "double f64[3]: 0 1 2",
      "bytes u8[3]: 0 1 2",
      "bool bool[2]: 0 1",
      "tied f32[2, 3]: 0 1 2 3 4 5",
      "part f32[2]: 4 5",
      "transposed f32[3, 2] 1 3: 0 3 1 4 2 5",
      "columns f32[2, 2] 3 1: 1 2 4 5",
      "expanded f32[2, 3] 0 1: 0 1 2 0 1 2",
      "none f32[0, 4]:",
  };
  for (const char* name : {"protocol2.bin", "protocol4.bin", "protocol5.bin", "parameters.bin"}) {
    const MappedFile file(std::filesystem::path(LOCKSTEP_FIXTURES) / "torch_files" / name);
    std::vector<std::string> found;
    for (const auto& stored : parse_torch_file(file.bytes(), name)) found.push_back(with_values(stored, file.bytes()));
    EXPECT_EQ(found, expected) << name;
  }
  const MappedFile small(std::filesystem::path(LOCKSTEP_FIXTURES) / "torch_files" / "float8.bin");
  EXPECT_EQ(error_of_file(std::string(reinterpret_cast<const char*>(small.bytes().data()), small.bytes().size())),
            "m.bin: tensor small: dtype torch.float8_e4m3fn; expected float32, bfloat16, float16 or float64");
  const MappedFile old(std::filesystem::path(LOCKSTEP_FIXTURES) / "torch_files" / "legacy.bin");
  EXPECT_NE(error_of_file(std::string(reinterpret_cast<const char*>(old.bytes().data()), old.bytes().size()))
                .find("found the one before torch 1.6"),
            std::string::npos);
}

/// Every byte of a real file changed and cut: answers within the file, or one sentence.
TEST(TorchFileTest, ChangedAtRandomItPointsNowhereElse) {
  constexpr uint32_t kSeed = 20251124;
  std::mt19937 random(kSeed);
  const MappedFile file(std::filesystem::path(LOCKSTEP_FIXTURES) / "torch_files" / "protocol2.bin");
  const std::vector<std::byte> good(file.bytes().begin(), file.bytes().end());
  const auto pickle =
      static_cast<size_t>(std::search(good.begin(), good.end(), kProtocol2.begin(), kProtocol2.end()) - good.begin());
  ASSERT_LT(pickle, good.size());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW((void)parse_torch_file(std::span(good).first(length), "m.bin"), UserError) << length;
  }
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = good;
    if (round % 10 == 0) bytes.resize(random() % bytes.size());
    for (auto changes = 1 + random() % 3; changes > 0 && !bytes.empty(); --changes) {
      const size_t at = round % 2 == 0 ? random() : pickle + random() % 2000;
      bytes[at % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      for (const auto& stored : parse_torch_file(bytes, "m.bin")) {
        ASSERT_TRUE(stored.begin <= stored.end && stored.end <= bytes.size()) << "seed " << kSeed << " round " << round;
        if (numel_of(stored.spec.shape) < 1000) (void)with_values(stored, bytes);
      }
      ++accepted;
    } catch (const UserError& e) {
      ASSERT_LT(std::string(e.what()).size(), 3000U);
    }
  }
  EXPECT_GT(accepted, 100) << "changes of values and of padding are harmless; seed " << kSeed;
}

TEST(TorchFileTest, TheFoldersNameIsTheWriters) {
  test_torch::Zip zip;
  zip.add({.name = "some model 1/data.pkl", .bytes = dict(unicode("w") + tensor({.size = {6}, .stride = {1}}))});
  zip.add({.name = "some model 1/data/0", .bytes = kData});
  EXPECT_EQ(parse_torch_file(as_bytes(zip.bytes()), "m.bin").size(), 1U);
}

TEST(TorchFileTest, NumbersThatReachBeyondTheStorageAreRefused) {
  const std::string beyond = ": reaches beyond the 6 elements of its storage";
  const std::string w = "m.bin: tensor w: ";
  EXPECT_EQ(error_of_tensor({.size = {7}, .stride = {1}}), w + "size [7], stride [1], offset 0" + beyond);
  EXPECT_EQ(error_of_tensor({.size = {6}, .stride = {1}, .offset = 1}), w + "size [6], stride [1], offset 1" + beyond);
  EXPECT_EQ(error_of_tensor({.size = {2}, .stride = {6}}), w + "size [2], stride [6], offset 0" + beyond);
  EXPECT_EQ(error_of_tensor({.size = {1}, .stride = {1}, .offset = -1}),
            w + "size [1], stride [1], offset -1" + beyond);
  EXPECT_EQ(error_of_tensor({.size = {1}, .stride = {1}, .offset = INT64_MAX}),
            w + "size [1], stride [1], offset 9223372036854775807" + beyond);
  EXPECT_EQ(error_of_tensor({.size = {-1}, .stride = {1}}), w + "size: expected ints from 0 to 2^56, found -1");
  EXPECT_EQ(error_of_tensor({.size = {2}, .stride = {-1}}), w + "stride: expected ints from 0 to 2^56, found -1");
  EXPECT_EQ(error_of_tensor({.size = {2}, .stride = {}}), w + "size [2] with stride []");
  const int64_t large = int64_t{1} << 40;
  for (const auto& size : {std::vector<int64_t>{large, large}, std::vector<int64_t>{large, large, 0}}) {
    EXPECT_NE(error_of_tensor({.size = size, .stride = std::vector<int64_t>(size.size(), 0)})
                  .find("more elements than a file can hold"),
              std::string::npos);
  }
  EXPECT_NE(error_of_tensor({.size = {large, 2}, .stride = {large, 1}}).find("more elements"), std::string::npos);
  EXPECT_NE(error_of_tensor({.size = std::vector<int64_t>(17, 1), .stride = std::vector<int64_t>(17, 1)})
                .find("expected a tuple of at most 16 ints, found a tuple of 17"),
            std::string::npos);
  EXPECT_EQ(error_of_tensor({.size = {7}, .stride = {1}, .numel = 7}),
            w + "storage 0: expected 7 elements of f32, found 24 bytes");
  EXPECT_EQ(error_of_tensor({.size = {6}, .stride = {1}, .key = "1"}), w + "storage 1 is not in the file");
  EXPECT_EQ(error_of_tensor({.size = {6}, .stride = {1}, .key = "../data.pkl"}),
            w + "storage ../data.pkl is not in the file");
  EXPECT_EQ(error_of_tensor({.size = {6}, .stride = {1}, .storage = "ComplexFloatStorage"}),
            w + "dtype torch.ComplexFloatStorage; expected float32, bfloat16, float16 or float64");
}

TEST(TorchFileTest, AStorageIsOfOneDtype) {
  EXPECT_EQ(error_of(dict(unicode("a") + tensor({.size = {6}, .stride = {1}}) + unicode("b") +
                          tensor({.size = {3}, .stride = {1}, .numel = 3, .storage = "LongStorage"}))),
            "m.bin: storage 0: said to hold both f32 and i64");
}

TEST(TorchFileTest, ViewsThatAreLargeOnlyInWordsDoNotAddUp) {
  std::string items;
  for (int i = 0; i < 5; ++i) {
    items += unicode("w" + std::to_string(i)) + tensor({.size = {int64_t{1} << 52}, .stride = {0}});
  }
  EXPECT_EQ(error_of(dict(items)), "m.bin: tensor w4: more bytes in all than a disk can hold");
}

TEST(TorchFileTest, WhatIsNoDictOfTensorsIsNamed) {
  const std::string t = tensor({.size = {6}, .stride = {1}});
  EXPECT_EQ(error_of("\x80\x02" + t + "."),
            "m.bin: expected a dict of tensors, found a call of torch._utils._rebuild_tensor_v2");
  EXPECT_EQ(error_of(dict(unicode("epoch") + "K\3"s)), "m.bin: tensor epoch: expected a tensor, found an int");
  EXPECT_EQ(error_of(dict("K\3"s + t)), "m.bin: expected names as keys, found an int");
  EXPECT_EQ(error_of(dict(unicode("w") + t + unicode("w") + t)), "m.bin: tensor w stands there twice");
  EXPECT_EQ(error_of(dict(unicode("a\nb") + t)),
            "m.bin: tensor a\\x0ab: expected a name of at most 1024 printable ASCII characters");
  EXPECT_EQ(error_of(dict(unicode("w") + name("torch", "float16"))),
            "m.bin: tensor w: expected a tensor, found the name torch.float16");
  EXPECT_EQ(error_of(dict(unicode("w") + call(name("torch", "Tensor"), "K\1"s))),
            "m.bin: tensor w: expected a tensor, found a call of torch.Tensor");
  EXPECT_EQ(error_of(dict(unicode("w") + call(name("torch._utils", "_rebuild_tensor_v2"), "K\1"s))),
            "m.bin: tensor w: expected a storage, found an int");
  EXPECT_EQ(error_of(dict(unicode("w") + call(name("torch._utils", "_rebuild_tensor_v2"), ""))),
            "m.bin: tensor w: expected at least 1 arguments, found 0");
  EXPECT_NE(error_of_tensor({.size = {6}, .stride = {1}, .behind = "}" + unicode("neg") + "\x88s"}).find("negated"),
            std::string::npos);
  std::string wrapped = t;
  for (int i = 0; i < 5; ++i) wrapped = call(name("torch._utils", "_rebuild_parameter"), wrapped);
  EXPECT_EQ(error_of(dict(unicode("w") + wrapped)),
            "m.bin: tensor w: expected a tensor, found a call of torch._utils._rebuild_parameter");
}

TEST(TorchFileTest, ACheckpointOfARunNamesItsKeysAndTheCommand) {
  const std::string nested = dict(unicode("epoch") + "K\3"s + unicode("state_dict") + "}" + unicode("opt") + "}");
  EXPECT_EQ(error_of(nested), "m.bin: tensor epoch: expected a tensor, found an int");
  EXPECT_EQ(
      error_of_file(file_of(dict(unicode("state_dict") + ordered_dict() + unicode("epoch") + "K\3"s), kData), true),
      "m.bin: state_dict: expected a tensor, found a dict; the file's 2 keys: state_dict, epoch; hint: a checkpoint "
      "of a training run? Save the model's tensors alone: python3 -c \"import torch; f = 'm.bin'; "
      "torch.save(torch.load(f, map_location='cpu', weights_only=True)['state_dict'], f)\"");
  const std::string pasted = error_of_file(file_of(dict(unicode("a'); evil('$(x)") + "}"), kData), true);
  EXPECT_NE(pasted.find("weights_only=True)[KEY], f)"), std::string::npos) << pasted;
}

TEST(TorchFileTest, OtherFilesUnderThisNameAreNamed) {
  EXPECT_EQ(error_of_file(""), "m.bin: expected a zip file that torch.save has written, found an empty file");
  EXPECT_EQ(
      error_of_file("<!DOCTYPE html>\n<html>"),
      "m.bin: expected a zip file that torch.save has written, found bytes that begin with \"<!DOCTYPE html>\\x0a\"");
  EXPECT_EQ(error_of_file("version https://git-lfs.github.com/spec/v1\n", true),
            "m.bin: expected weights, found Git's note of where they are; hint: git lfs pull");
  const std::string old = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03."s;
  EXPECT_EQ(
      error_of_file(old, true),
      "m.bin: expected the zip format of torch.save, found the one before torch 1.6; hint: save it again: python3 -c "
      "\"import torch; f = 'm.bin'; torch.save(torch.load(f, map_location='cpu', weights_only=True), f)\"");
  EXPECT_NE(error_of_file(std::string(257, 'x') + "ustar" + std::string(300, '\0')).find("before torch 1.6"),
            std::string::npos);
  test_torch::Zip other;
  other.add({.name = "word/document.xml", .bytes = "x"});
  EXPECT_EQ(error_of_file(other.bytes()),
            "m.bin: expected a member data.pkl, as torch.save writes it, found a zip file without");
  test_torch::Zip big;
  big.add({.name = "archive/data.pkl", .bytes = dict("")});
  big.add({.name = "archive/byteorder", .bytes = "big"});
  EXPECT_EQ(error_of_file(big.bytes()), "m.bin: expected numbers of byte order little, found big");
}

TEST(TorchFileTest, NothingOfAMaliciousFileIsRun) {
  const std::string evil = dict(unicode("w") + name("posix", "system") + tuple(unicode("touch evil")) + "R");
  EXPECT_EQ(error_of(evil),
            "m.bin: data.pkl: asks Python for posix.system, which no dict of tensors needs: refused, and nothing of it "
            "was run");
}

}  // namespace
}  // namespace lockstep
