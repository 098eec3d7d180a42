// A folder's codes: read as values and as bytes, and refused by name where a part is missing, short or of another kind.
#include "lockstep/model/quantised_tensor.h"

#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

using Tensors = std::map<std::string, Tensor>;

const Shape kShape{48, 40};

class QuantisedTensorTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  Weights written(const Tensors& tensors) const {
    std::vector<TensorSpec> specs;
    for (const auto& [name, value] : tensors) specs.push_back(spec_of(value, name));
    SafetensorsWriter writer(dir_, specs);
    for (const auto& [name, value] : tensors) writer.write(name, value);
    writer.finish();
    return Weights::open(dir_);
  }

  /// What a folder has of one matrix, and its bytes as they are laid.
  Tensors parts(const QuantFormat& format, std::vector<uint8_t>& bytes, const Shape& shape = kShape) const {
    const QuantLayout layout = QuantLayout::of(format, shape);
    bytes.resize(static_cast<size_t>(layout.bytes));
    Tensor values = empty({layout.numel}, Dtype::kF32);
    fill_normal(values, 0.02, 3, "w");
    quantise(
        format, shape,
        [&](int64_t begin, std::span<float> out) {
          std::copy_n(values.data_ptr<float>() + begin, out.size(), out.begin());
        },
        0, bytes);
    const auto part = [&](int64_t at, int64_t count, Dtype dtype) {
      return view_memory(bytes.data() + at, {count}, dtype).clone();
    };
    if (format.kind == QuantKind::kInt8) {
      return {{"a.weight", part(0, layout.code_bytes, Dtype::kI8).view(shape)},
              {"a.SCB", part(layout.scales_at, layout.num_scales, Dtype::kF32)},
              {"a.weight_format", zeros({}, Dtype::kU8)}};
    }
    std::string state = fmt::format(R"({{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [{}]}})",
                                    fmt::join(shape, ", "));
    Tensors out{
        {"a.weight", part(0, layout.code_bytes, Dtype::kU8).view({-1, 1})},
        {"a.weight.absmax", part(layout.scales_at, layout.num_scales, format.nested ? Dtype::kU8 : Dtype::kF32)},
        {"a.weight.quant_map", from_values(quant_map(format.kind), {16})}};
    if (format.nested) {
      out["a.weight.nested_absmax"] = part(layout.nested_at, layout.num_nested, Dtype::kF32);
      out["a.weight.nested_quant_map"] = from_values(nested_quant_map(), {256});
      const float offset = *reinterpret_cast<const float*>(bytes.data() + layout.nested_at + layout.num_nested * 4);
      state.insert(state.size() - 1, R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": )" +
                                         std::to_string(static_cast<double>(offset)));
      const auto rounded = static_cast<float>(std::stod(std::to_string(static_cast<double>(offset))));
      std::memcpy(bytes.data() + layout.nested_at + layout.num_nested * 4, &rounded, 4);
    }
    out["a.weight.quant_state.bitsandbytes__nf4"] = text(state);
    return out;
  }
  static Tensor text(std::string value) {
    return view_memory(value.data(), {static_cast<int64_t>(value.size())}, Dtype::kU8).clone();
  }

  fs::path dir_ = fs::temp_directory_path() / ("quantised-" + std::to_string(std::random_device{}()));
};

std::vector<QuantFormat> formats() {
  return {{QuantKind::kNf4, false, Dtype::kBF16}, {QuantKind::kNf4, true, Dtype::kBF16}, {.kind = QuantKind::kInt8}};
}

TEST_F(QuantisedTensorTest, IsOneTensorOfTheDtypeThatItHad) {
  for (const QuantFormat& format : formats()) {
    std::vector<uint8_t> bytes;
    const Weights weights = written(parts(format, bytes));
    ASSERT_EQ(weights.specs().size(), 1U);
    EXPECT_EQ(weights.specs()[0].describe(), "bf16[48, 40]");
    const Tensor whole = empty({numel_of(kShape)}, Dtype::kF32);
    unpack(format, kShape, view_memory(bytes.data(), {static_cast<int64_t>(bytes.size())}, Dtype::kU8), whole);
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 1920}, {1, 3}, {63, 130}, {1919, 1}, {65, 900}}) {
      const Tensor part = empty({count}, Dtype::kF32);
      weights.read_flat("a.weight", begin, part);
      EXPECT_TRUE(part.equal(whole.narrow(0, begin, count))) << begin;
    }
    for (size_t begin = 0; begin < bytes.size(); begin += 77) {
      std::vector<uint8_t> part(std::min<size_t>(100, bytes.size() - begin));
      weights.read_quantised("a.weight", static_cast<int64_t>(begin), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(begin))) << begin;
    }
  }
}

TEST_F(QuantisedTensorTest, ASmallMatrixMayEndWithinABlock) {
  for (const Shape& shape : {Shape{8, 20}, Shape{1, 65}, Shape{3, 50}, Shape{5, 13}}) {
    for (const QuantFormat& format : formats()) {
      std::vector<uint8_t> bytes;
      const Weights weights = written(parts(format, bytes, shape));
      const Tensor whole = empty({numel_of(shape)}, Dtype::kF32), read = empty({numel_of(shape)}, Dtype::kF32);
      unpack(format, shape, view_memory(bytes.data(), {static_cast<int64_t>(bytes.size())}, Dtype::kU8), whole);
      weights.read_flat("a.weight", 0, read);
      EXPECT_TRUE(read.equal(whole)) << quant_kind_name(format.kind) << " " << shape[0] << " x " << shape[1];
      const Tensor last = empty({numel_of(shape) - 7}, Dtype::kF32);
      weights.read_flat("a.weight", 7, last);
      EXPECT_TRUE(last.equal(whole.narrow(0, 7, last.numel()))) << quant_kind_name(format.kind);
    }
  }
}

/// The last bits of the map differ between instruction sets, in bitsandbytes too.
TEST_F(QuantisedTensorTest, TakesAMapThatAnotherProcessorMade) {
  std::vector<uint8_t> bytes;
  Tensors tensors = parts(formats()[1], bytes);
  tensors["a.weight.nested_quant_map"].mul_(1 + 2e-7);
  EXPECT_EQ(written(tensors).specs()[0].describe(), "bf16[48, 40]");
}

TEST_F(QuantisedTensorTest, RefusesByNameWhatDoesNotFit) {
  const std::string state = "a.weight.quant_state.bitsandbytes__nf4";
  const auto says = [&](const QuantFormat& format, const std::string& expected,
                        const std::function<void(Tensors&)>& change) {
    std::vector<uint8_t> bytes;
    Tensors tensors = parts(format, bytes);
    change(tensors);
    try {
      (void)written(tensors);
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  const auto [plain, nested, rows] = std::tuple(formats()[0], formats()[1], formats()[2]);
  const auto cut = [](const std::string& name, int64_t count) {
    return [=](Tensors& all) { all[name] = all[name].flatten().narrow(0, 0, count).contiguous(); };
  };
  const auto put = [&](const std::string& value) { return [=](Tensors& all) { all[state] = text(value); }; };
  says(plain, "a.weight.absmax in", cut("a.weight.absmax", 29));
  says(plain, "found no such tensor", [](Tensors& all) { all.erase("a.weight.absmax"); });
  says(plain, "960 bytes of codes", cut("a.weight", 959));
  says(plain, "a.weight.quant_map", [](Tensors& all) { all["a.weight.quant_map"].mul_(2); });
  says(nested, "a.weight.nested_quant_map", [](Tensors& all) { all["a.weight.nested_quant_map"].mul_(1.00001); });
  says(nested, "a.weight.nested_absmax", [](Tensors& all) { all["a.weight.nested_absmax"] = zeros({2}, Dtype::kF32); });
  says(nested, "a.weight.nested_quant_map", [](Tensors& all) { all.erase("a.weight.nested_quant_map"); });
  says(rows, "a.SCB", cut("a.SCB", 47));
  says(rows, "i8 codes", [](Tensors& all) { all.erase("a.weight"); });
  const auto laid = [](int64_t format) {
    return [=](Tensors& all) { all["a.weight_format"] = zeros({}, Dtype::kU8).fill_(format); };
  };
  says(rows, "a.weight_format in", laid(3));
  says(rows, "expected 0 (codes row by row, as bitsandbytes reads them), found 3 (col_ampere)", laid(3));
  says(rows, "found 9", laid(9));
  says(rows, "one byte", [](Tensors& all) { all["a.weight_format"] = zeros({2}, Dtype::kU8); });
  says(plain, "", put("{"));
  says(plain, "JSON object", put("[]"));
  says(plain, "blocksize 64",
       put(R"({"quant_type": "nf4", "blocksize": 128, "dtype": "bfloat16", "shape": [48, 40]})"));
  says(plain, "quant_type", put(R"({"quant_type": "fp4", "blocksize": 64, "dtype": "bfloat16", "shape": [48, 40]})"));
  says(plain, "dtype of", put(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "int64", "shape": [48, 40]})"));
  says(plain, "bytes of codes",
       put(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [48, 48]})"));
  for (const char* shape : {"[]", "[0, 4]", "[-1, 4]", "[4611686018427387904, 4611686018427387904]", "7", "[1.5, 2]"}) {
    says(plain, "shape of a matrix",
         put(std::string(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": )") + shape + "}"));
  }
}

}  // namespace
}  // namespace lockstep
