#include "lockstep/model/weights.h"

#include <cstring>
#include <fstream>
#include <random>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/model/safetensors_header.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/test_torch_file.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }
  std::string error() const {
    try {
      (void)Weights::open(dir_);
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
      const std::string text = e.what(), place = dir_.string();
      const size_t at = text.find(place);
      return at == std::string::npos ? text : text.substr(0, at) + "D" + text.substr(at + place.size());
    }
    return "no error";
  }
  fs::path dir_;
};

std::string with_length(uint64_t length, const std::string& rest) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);  // this machine is little-endian, as the format
  return out + rest;
}

std::string file_of(const std::string& header, size_t data) {
  return with_length(header.size(), header) + std::string(data, '\1');
}

std::vector<float> floats(const Tensor& tensor) {
  const Tensor f = to_dtype(tensor, Dtype::kF32).contiguous();
  return {f.data_ptr<float>(), f.data_ptr<float>() + f.numel()};
}

TEST_F(WeightsTest, WritesAndReadsBackEveryDtypeWholeAndInSlices) {
  const std::vector<float> values{1.5F, -2.0F, 0.25F, 3.0F, 4.0F, -0.5F};
  SafetensorsWriter out(dir_, {{"b", Dtype::kBF16, {2, 3}},
                               {"a", Dtype::kF32, {6}},
                               {"h", Dtype::kF16, {3, 2}},
                               {"d", Dtype::kF64, {6}},
                               {"none", Dtype::kF32, {0, 4}},
                               {"one", Dtype::kF32, {}}});
  const Tensor source = from_values(std::span<const float>(values), {6});
  out.write("a", source);
  out.write("b", source.view({2, 3}));
  out.write("d", source);
  out.write_flat("h", 4, source.narrow(0, 4, 2));
  out.write_flat("h", 0, source.narrow(0, 0, 4));
  out.write("none", empty({0, 4}, Dtype::kF32));
  out.write("one", full({}, 7.0, Dtype::kF32));
  EXPECT_EQ(out.finish(), std::vector<std::string>{"model.safetensors"});

  const Weights weights = Weights::open(dir_);
  EXPECT_EQ(weights.specs().size(), 6U);
  EXPECT_EQ(weights.total_bytes(), 48 + 24 + 12 + 12 + 4);
  for (const char* key : {"a", "b", "d", "h"}) EXPECT_EQ(floats(weights.read(key)), values) << key;
  EXPECT_EQ(*weights.find("b"), (TensorSpec{"b", Dtype::kBF16, {2, 3}}));
  EXPECT_EQ(weights.find("absent"), nullptr);
  EXPECT_EQ(weights.file_of("b"), "model.safetensors");
  for (const Dtype to : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
    for (const char* key : {"a", "b", "d", "h"}) {
      const Tensor slice = empty({3}, to);
      weights.read_flat(key, 2, slice);
      EXPECT_EQ(floats(slice), (std::vector<float>{0.25F, 3.0F, 4.0F})) << key;
    }
  }
  EXPECT_THROW(weights.read_flat("a", 4, empty({3}, Dtype::kF32)), InternalError);
}

TEST_F(WeightsTest, ShardsGetAnIndexAndAreFoundAgain) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 5; ++i) specs.push_back({"t" + std::to_string(i), Dtype::kF32, {4}});
  SafetensorsWriter out(dir_, specs, {.max_shard_bytes = 32});
  for (int i = 4; i >= 0; --i) out.write("t" + std::to_string(i), full({4}, i, Dtype::kF32));
  EXPECT_EQ(out.finish(),
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  EXPECT_EQ(read_json(dir_ / "model.safetensors.index.json")["metadata"]["total_size"], 80);
  const Weights weights = Weights::open(dir_);
  EXPECT_EQ(weights.file_of("t3"), "model-00002-of-00003.safetensors");
  EXPECT_EQ(floats(weights.read("t3")), std::vector<float>(4, 3.0F));

  fs::remove(dir_ / "model-00002-of-00003.safetensors");
  EXPECT_EQ(error(),
            "D/model.safetensors.index.json: 1 of 3 files are not there: model-00002-of-00003.safetensors; hint: the "
            "download is not complete");
}

TEST_F(WeightsTest, TensorsOfAnotherFolderAreReadUnderNamesOfOurs) {
  const fs::path other = dir_ / "tower";
  fs::create_directories(other);
  SafetensorsWriter ours(dir_, {{"model.a", Dtype::kF32, {2}}});
  ours.write("model.a", full({2}, 1.0, Dtype::kF32));
  ours.finish();
  SafetensorsWriter theirs(other,
                           {{"vision_model.x.w", Dtype::kBF16, {2, 2}},
                            {"vision_model.y", Dtype::kF32, {3}},
                            {"text_model.w", Dtype::kF32, {5}}},
                           {.max_shard_bytes = 12});
  theirs.write("vision_model.x.w", full({2, 2}, 2.0, Dtype::kF32));
  theirs.write("vision_model.y", full({3}, 3.0, Dtype::kF32));
  theirs.write("text_model.w", full({5}, 4.0, Dtype::kF32));
  theirs.finish();

  Weights weights = Weights::open(dir_);
  EXPECT_FALSE(weights.borrows());
  weights.borrow({other, {"vision_model.", ""}, "model.tower."});
  EXPECT_EQ(weights.borrowed_from(), std::vector<fs::path>{other});
  EXPECT_EQ(weights.specs().size(), 3U);
  EXPECT_EQ(weights.find("text_model.w"), nullptr);
  EXPECT_EQ(*weights.find("model.tower.x.w"), (TensorSpec{"model.tower.x.w", Dtype::kBF16, {2, 2}}));
  EXPECT_EQ(floats(weights.read("model.tower.x.w")), std::vector<float>(4, 2.0F));
  const Tensor slice = empty({2}, Dtype::kF32);
  weights.read_flat("model.tower.y", 1, slice);
  EXPECT_EQ(floats(slice), std::vector<float>(2, 3.0F));
  EXPECT_TRUE(weights.is_borrowed("model.tower.y"));
  EXPECT_FALSE(weights.is_borrowed("model.a"));
  EXPECT_EQ(weights.files(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(fs::path(weights.file_of("model.tower.y")).parent_path(), other);
  EXPECT_EQ(weights.total_bytes(), 8 + 8 + 12);
  EXPECT_EQ(weights.borrowed_bytes(), 8 + 12);

  Weights whole = Weights::open(dir_);
  whole.borrow({other, {"encoder.", ""}, "model.tower."});
  EXPECT_NE(whole.find("model.tower.text_model.w"), nullptr) << "the first beginning that any name has";
  Weights own = Weights::open(dir_);
  own.borrow({other, {"vision_model."}, "model."});
  EXPECT_FALSE(own.borrows()) << "names that begin so are here already";
  EXPECT_THROW(own.borrow({other, {"audio."}, "b."}), UserError);
  EXPECT_THROW(own.borrow({dir_ / "none", {""}, "b."}), UserError);
}

TEST_F(WeightsTest, AnIndexThatLiesIsNamed) {
  put("x.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  put("model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}})");
  EXPECT_EQ(error(), "D/model.safetensors.index.json: tensor b: expected in x.safetensors, found in no file");
  put("model.safetensors.index.json", R"({"weight_map": {"a": "../x.safetensors"}})");
  EXPECT_EQ(error(),
            "D/model.safetensors.index.json: weight_map a: expected the name of a file in this folder, found "
            "\"../x.safetensors\"");
  put("y.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  put("model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  EXPECT_EQ(error(), "D/y.safetensors: tensor a stands in x.safetensors too; hint: remove the copy that is not meant");
}

TEST_F(WeightsTest, DamagedFilesSayWhatWasExpectedAndFound) {
  const std::string reload = "; hint: copy or download the file again and compare its size with the source";
  const auto expect = [&](const std::string& bytes, const std::string& message) {
    put("model.safetensors", bytes);
    EXPECT_EQ(error(), "D/model.safetensors" + message);
  };
  const std::string two =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[)";
  expect("", ": expected at least 8 bytes, found 0: truncated" + reload);
  expect(with_length(50, "{}"), ": expected a header of 50 bytes, found 2 behind its length: truncated" + reload);
  expect(file_of(two + "8,16]}}", 12), ": expected 132 bytes, found 128: truncated" + reload);
  expect(file_of(two + "8,16]}}", 17), ": expected 132 bytes, found 133: more than the header describes" + reload);
  expect(file_of(two + "4,12]}}", 12),
         ": tensor b: expected to begin at byte 8, begins at 4: overlaps the tensor before it");
  expect(file_of(two + "9,17]}}", 17), ": tensor b: expected to begin at byte 8, begins at 9: a gap");
  expect(file_of(two + "8,12]}}", 12), ": tensor b: f32[2] needs 8 bytes, its data_offsets are [8, 12]");
  expect(file_of(two + "16,8]}}", 16), ": tensor b: f32[2] needs 8 bytes, its data_offsets are [16, 8]");
  expect(
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      " header: \"a\" stands there twice; hint: keep one of the two");
  expect(file_of(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1),
         ": tensor a: dtype F8_E4M3 (quantised); expected F32, BF16, F16 or F64; hint: dequantise first: load the "
         "model with "
         "its own tool and save it in bfloat16");
  expect(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
         ": tensor a: shape: expected non-negative integers, found [-1]");
  expect(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
         ": tensor a: shape [4294967296,4294967296]: more elements than a file can hold");
  expect(file_of("[1,2]", 0), ": expected an object as header, found array");
  expect(file_of(R"({"a":3})", 0),
         ": tensor a: expected {dtype, shape, data_offsets}, found \"object\" missing or of another kind");
}

TEST_F(WeightsTest, FoldersWithoutSafetensorsSayWhatToDo) {
  EXPECT_EQ(error(), "D: expected model.safetensors, pytorch_model.bin or an index of one of them, found neither");
  put("model-00001-of-00002.safetensors", "x");
  EXPECT_NE(error().find("found model-00001-of-00002.safetensors without an index"), std::string::npos);
  fs::remove(dir_ / "model-00001-of-00002.safetensors");
  put("consolidated.00.pth", "x");
  EXPECT_EQ(
      error(),
      "D: expected model.safetensors, pytorch_model.bin or an index of one of them, found only consolidated.00.pth; "
      "hint: a model's folder in Hugging Face's layout has one of these names: convert the checkpoint to it");
  fs::remove(dir_ / "consolidated.00.pth");
  put("pytorch_model-00001-of-00002.bin", "x");
  EXPECT_EQ(error(),
            "D: expected model.safetensors, pytorch_model.bin or an index of one of them, found "
            "pytorch_model-00001-of-00002.bin without an index; hint: copy the index file too");
  fs::remove(dir_ / "pytorch_model-00001-of-00002.bin");
  put("adapter_model.bin", "x");
  EXPECT_NE(error().find("found adapter_model.bin: a LoRA adapter, not a model"), std::string::npos);
  put("adapter_model.safetensors", "x");
  EXPECT_NE(error().find("a LoRA adapter, not a model"), std::string::npos);
  fs::remove_all(dir_);
  EXPECT_NE(error().find("found no such folder"), std::string::npos);
}

/// A file of torch.save's kind with f32[2, 3] = 0 … 5, and the same transposed.
std::string torch_file(const std::string& name) {
  std::string data;
  for (const float value : {0.F, 1.F, 2.F, 3.F, 4.F, 5.F}) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return test_torch::file_of(
      test_torch::dict(test_torch::unicode(name) + test_torch::tensor({.size = {2, 3}, .stride = {3, 1}}) +
                       test_torch::unicode(name + ".t") + test_torch::tensor({.size = {3, 2}, .stride = {1, 3}})),
      data);
}

TEST_F(WeightsTest, PyTorchsOwnFilesAreReadWholeInSlicesAndThroughStrides) {
  put("pytorch_model.bin", torch_file("a"));
  const Weights weights = Weights::open(dir_);
  EXPECT_EQ(weights.files(), std::vector<std::string>{"pytorch_model.bin"});
  EXPECT_EQ(weights.file_of("a.t"), "pytorch_model.bin");
  EXPECT_EQ(weights.total_bytes(), 48);
  EXPECT_EQ(*weights.find("a.t"), (TensorSpec{"a.t", Dtype::kF32, {3, 2}}));
  EXPECT_EQ(floats(weights.read("a")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(floats(weights.read("a.t")), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  for (const Dtype to : {Dtype::kF32, Dtype::kBF16}) {
    const Tensor slice = empty({3}, to);
    weights.read_flat("a", 2, slice);
    EXPECT_EQ(floats(slice), (std::vector<float>{2, 3, 4}));
    weights.read_flat("a.t", 1, slice);
    EXPECT_EQ(floats(slice), (std::vector<float>{3, 1, 4}));
  }
  EXPECT_THROW(weights.read_flat("a.t", 4, empty({3}, Dtype::kF32)), InternalError);
}

TEST_F(WeightsTest, PyTorchsShardsFollowTheirIndexAndSafetensorsComeFirst) {
  put("pytorch_model-00001-of-00002.bin", torch_file("a"));
  put("pytorch_model-00002-of-00002.bin", torch_file("b"));
  put("pytorch_model.bin.index.json",
      R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b.t": "pytorch_model-00002-of-00002.bin"}})");
  EXPECT_EQ(Weights::open(dir_).file_of("b"), "pytorch_model-00002-of-00002.bin");
  put("pytorch_model.bin.index.json", R"({"weight_map": {"a": "pytorch_model-00002-of-00002.bin"}})");
  EXPECT_EQ(error(),
            "D/pytorch_model.bin.index.json: tensor a: expected in pytorch_model-00002-of-00002.bin, found in no file");

  put("model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors"}})");
  EXPECT_EQ(error(),
            "D/model.safetensors.index.json: 1 of 1 files are not there: x.safetensors; hint: the download is not "
            "complete; without model.safetensors.index.json the pytorch_model files would be read");
  put("model.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  EXPECT_EQ(Weights::open(dir_).files(), std::vector<std::string>{"model.safetensors"});
}

TEST_F(WeightsTest, AFileBeyondFourGigabytesIsReadByZip64) {
  constexpr int64_t kNumel = (int64_t{5} << 30) / 4;
  const float last = 1.5F;
  test_torch::Zip zip({.zip64 = true});
  zip.add({.name = "m/data.pkl",
           .bytes = test_torch::dict(
               test_torch::unicode("a") + test_torch::tensor({.size = {kNumel}, .stride = {1}, .numel = kNumel}) +
               test_torch::unicode("b") + test_torch::tensor({.size = {2}, .stride = {1}, .numel = 2, .key = "1"}))});
  zip.add({.name = "m/data/0",
           .bytes = std::string(reinterpret_cast<const char*>(&last), sizeof last),
           .zeros = static_cast<uint64_t>(kNumel - 1) * 4});
  zip.add({.name = "m/data/1", .bytes = std::string("\0\0\0\x40\0\0\x40\x40", 8)});
  zip.write(dir_ / "pytorch_model.bin");  // sparse
  const Weights weights = Weights::open(dir_);
  const Tensor end = empty({2}, Dtype::kF32);
  weights.read_flat("a", kNumel - 2, end);
  EXPECT_EQ(floats(end), (std::vector<float>{0.0F, 1.5F}));
  EXPECT_EQ(floats(weights.read("b")), (std::vector<float>{2.0F, 3.0F}));
}

TEST_F(WeightsTest, UnalignedDataIsConvertedCorrectly) {
  const std::string header = R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  ASSERT_EQ((8 + header.size()) % 2, 1U) << "the point of this test";
  put("model.safetensors", with_length(header.size(), header) + std::string("\x80\x3f\x00\xc0", 4));
  const Tensor out = empty({2}, Dtype::kF32);
  Weights::open(dir_).read_flat("a", 0, out);
  EXPECT_EQ(floats(out), (std::vector<float>{1.0F, -2.0F}));
}

TEST_F(WeightsTest, ConversionCrossesItsInnerBuffer) {
  constexpr int64_t kCount = 200'001;
  const Tensor values = empty({kCount}, Dtype::kF32);
  for (int64_t i = 0; i < kCount; ++i) values.data_ptr<float>()[i] = static_cast<float>(i % 251);
  SafetensorsWriter out(dir_, {{"a", Dtype::kBF16, {kCount}}});
  out.write("a", values);
  out.finish();
  const Tensor back = empty({kCount - 7}, Dtype::kF32);
  Weights::open(dir_).read_flat("a", 7, back);
  EXPECT_TRUE(back.equal(values.narrow(0, 7, kCount - 7)));
}

TEST_F(WeightsTest, TheWriterRefusesWrongShapesAndMissingParts) {
  SafetensorsWriter out(dir_, {{"a", Dtype::kF32, {2, 2}}});
  try {
    out.write("a", zeros({4}, Dtype::kF32));
    FAIL() << "a wrong shape was written";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "a: expected f32[2, 2], found f32[4]");
  }
  out.write_flat("a", 0, zeros({3}, Dtype::kF32));
  EXPECT_THROW(out.finish(), InternalError);
  EXPECT_THROW(SafetensorsWriter(dir_ / "absent", {{"a", Dtype::kF32, {2}}}), UserError);
}

TEST_F(WeightsTest, AFullDiskIsReportedWithNumbersAndLeavesNothing) {
  try {
    SafetensorsWriter out(dir_, {{"a", Dtype::kU8, {int64_t{1} << 55}}});
    FAIL() << "a disk of 32 PiB?";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_NE(std::string(e.what()).find(" needed, "), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(" left on that disk: "), std::string::npos) << e.what();
  }
  EXPECT_FALSE(fs::exists(dir_ / "model.safetensors"));
}

/// Bytes changed, cut, doubled, numbers replaced: the parser answers or refuses, and never reads outside.
TEST(SafetensorsFuzzTest, MutatedHeadersNeverCrashAndNeverPointOutside) {
  const std::string good = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}})",
      24);
  const std::vector<std::string> words{
      "18446744073709551615", "-1", "1e400", "null", "[]", "{", "\"", "0.5", "F8_E5M2", "\\u0000"};
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, words[random() % words.size()]);
          break;
        case 3:
          bytes.erase(at, 1 + random() % 8);
          break;
        default:
          bytes.insert(at, bytes.substr(at, random() % 40));
      }
      if (bytes.empty()) break;
    }
    if (bytes.size() > 8 && random() % 2 == 0) {  // keep the length true, so that the JSON is reached
      const uint64_t length = bytes.size() - 8 - std::min<size_t>(24, bytes.size() - 8);
      std::memcpy(bytes.data(), &length, 8);
    }
    const std::vector<char> exact(bytes.begin(), bytes.end());  // no slack behind the last byte
    const auto view = std::as_bytes(std::span<const char>(exact));
    try {
      for (const auto& stored : parse_safetensors_header(view, "fuzz")) {
        ASSERT_LE(stored.end, bytes.size()) << "seed " << kSeed << " round " << round;
        ASSERT_EQ(stored.end - stored.begin, static_cast<size_t>(stored.spec.bytes()));
      }
      ++accepted;
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(accepted, 0) << "some mutations (in names) are harmless; seed " << kSeed;
}

}  // namespace
}  // namespace lockstep
