#include "lockstep/model/quantised_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kLongestState = 1 << 16;  // bytes
const std::string kState = ".quant_state.bitsandbytes__", kWeight = ".weight", kFormat = ".weight_format";

class Finder {
 public:
  Finder(const RawTensors& raw, std::string where) : raw_(raw), where_(std::move(where)) {}

  void add_four_bits(const std::string& state_name) {
    const size_t at = state_name.find(kState);
    const std::string name = state_name.substr(0, at), kind = state_name.substr(at + kState.size());
    const Json state = state_of(state_name);
    const auto text = [&](const char* key) {
      return state.value(key, Json()).is_string() ? state[key].get<std::string>() : "";
    };
    QuantisedTensor made{.spec = {.name = name}, .scales = name + ".absmax"};
    made.format.kind = kind == "nf4" ? QuantKind::kNf4 : QuantKind::kFp4;
    if ((kind != "nf4" && kind != "fp4") || text("quant_type") != kind) {
      throw error(state_name, "a quant_type of nf4 or fp4, as it is called", state.value("quant_type", Json()).dump());
    }
    expect_number(state_name, state, "blocksize", QuantLayout::kBlock);
    made.spec.shape = shape_from(state_name, state);
    made.spec.dtype = made.format.dtype = dtype_from(state_name, text("dtype"));
    made.format.nested = state.contains("nested_offset") || raw_.find(name + ".nested_absmax") != nullptr;
    if (made.format.nested) {
      expect_number(state_name, state, "nested_blocksize", QuantLayout::kNested);
      const Json offset = state.value("nested_offset", Json());
      if (!offset.is_number() || !std::isfinite(offset.get<double>())) {
        throw error(state_name, "a number as nested_offset", offset.dump());
      }
      made.offset = static_cast<float>(offset.get<double>());
      made.nested = name + ".nested_absmax";
      expect_map(name + ".nested_quant_map", nested_quant_map());
    }
    expect_map(name + ".quant_map", quant_map(made.format.kind));
    expect_sizes(made);
    for (const char* part : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
      found_.parts.insert(name + part);
    found_.parts.insert(state_name);
    found_.tensors.emplace(name, std::move(made));
  }

  void add_rows(const std::string& scales_name) {
    const std::string module = scales_name.substr(0, scales_name.size() - std::string(".SCB").size());
    const TensorSpec* codes = raw_.find(module + kWeight);
    if (codes == nullptr || codes->dtype != Dtype::kI8 || codes->shape.size() != 2) {
      throw error(module + kWeight, "i8 codes of a matrix, since there is " + scales_name,
                  codes == nullptr ? "no such tensor" : codes->describe());
    }
    QuantisedTensor made{.format = {.kind = QuantKind::kInt8},
                         .spec = {module + kWeight, Dtype::kBF16, codes->shape},
                         .scales = scales_name};
    expect_sizes(made);
    expect_rows(module + kFormat);
    found_.parts.insert({scales_name, module + kFormat});
    found_.tensors.emplace(module + kWeight, std::move(made));
  }

  QuantisedTensors take() { return std::move(found_); }

 private:
  UserError error(const std::string& name, const std::string& expected, const std::string& found) const {
    return checkpoint_error(fmt::format("{} in {}: expected {}, found {}", name, where_, expected, found),
                            "take the unquantised folder, and --quant_method bnb --quant_bits 4 where it is used");
  }

  Json state_of(const std::string& name) const {
    const int64_t size = raw_.find(name)->bytes();
    if (size > kLongestState) throw error(name, "a state as JSON", fmt::format("{} bytes", size));
    std::string text(static_cast<size_t>(size), '\0');
    raw_.read(name, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
    Json state = parse_json(text, name);
    if (!state.is_object()) throw error(name, "a state as a JSON object", state.type_name());
    return state;
  }

  void expect_number(const std::string& name, const Json& state, const char* key, int64_t expected) const {
    const Json found = state.value(key, Json());
    if (found.is_number_integer() && found.get<int64_t>() == expected) return;
    throw error(name, fmt::format("{} {}, which bitsandbytes has by default", key, expected), found.dump());
  }

  Shape shape_from(const std::string& name, const Json& state) const {
    const Json list = state.value("shape", Json());
    Shape shape;
    int64_t numel = 1;
    const bool is_list = list.is_array() && !list.empty() && list.size() <= 8;
    for (const auto& size : is_list ? list : Json::array()) {
      const bool fits = size.is_number_integer() && size.get<int64_t>() > 0 && size.get<int64_t>() < (int64_t{1} << 40);
      if (!fits || numel > (int64_t{1} << 48) / size.get<int64_t>())
        throw error(name, "the shape of a matrix", list.dump());
      shape.push_back(size.get<int64_t>());
      numel *= shape.back();
    }
    if (shape.empty()) throw error(name, "the shape of a matrix", list.dump());
    return shape;
  }

  Dtype dtype_from(const std::string& name, const std::string& word) const {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
      if (word == torch_dtype_name(dtype)) return dtype;
    }
    throw error(name, "a dtype of float32, bfloat16 or float16", "\"" + word + "\"");
  }

  void expect_map(const std::string& name, const std::vector<float>& expected) const {
    const TensorSpec* spec = raw_.find(name);
    if (spec == nullptr || spec->dtype != Dtype::kF32 || numel_of(spec->shape) != std::ssize(expected)) {
      throw error(name, fmt::format("f32[{}]", expected.size()), spec == nullptr ? "no such tensor" : spec->describe());
    }
    std::vector<float> found(expected.size());
    raw_.read(name, 0, {reinterpret_cast<uint8_t*>(found.data()), found.size() * 4});
    // Their last bits depend on the instruction set of the machine that made them, with bitsandbytes too.
    const bool same = std::ranges::equal(expected, found, [](float a, float b) {
      constexpr float kRounding = 1e-6F;
      return std::abs(a - b) <= kRounding * std::abs(a);
    });
    if (!same) throw error(name, "the values that bitsandbytes has", "others");
  }

  /// The byte that says how 8-bit codes lie, where there is one: old versions stored them in tiles for tensor cores.
  /// Source: bitsandbytes nn/modules.py maybe_rearrange_weight.
  void expect_rows(const std::string& name) const {
    const TensorSpec* spec = raw_.find(name);
    if (spec == nullptr) return;
    if (spec->dtype != Dtype::kU8 || numel_of(spec->shape) != 1) {
      throw error(name, "one byte that says how the codes lie", spec->describe());
    }
    uint8_t format = 0;
    raw_.read(name, 0, {&format, 1});
    if (format == 0) return;
    static constexpr std::array kTiles = {"col32", "col_turing", "col_ampere"};
    throw error(name, "0 (codes row by row, as bitsandbytes reads them)",
                format <= kTiles.size() ? fmt::format("{} ({})", format, kTiles[format - 1U]) : std::to_string(format));
  }

  void expect_sizes(const QuantisedTensor& made) const {
    const QuantLayout layout = QuantLayout::of(made.format, made.spec.shape);
    const std::string shape = format_shape(made.spec.shape);
    const TensorSpec* codes = raw_.find(made.spec.name);
    if (codes == nullptr || codes->bytes() != layout.code_bytes) {
      throw error(made.spec.name, fmt::format("{} bytes of codes of a matrix {}", layout.code_bytes, shape),
                  codes == nullptr ? "no such tensor" : codes->describe());
    }
    expect_part(made.scales, made.format.nested ? Dtype::kU8 : Dtype::kF32, layout.num_scales, shape);
    if (made.format.nested) expect_part(made.nested, Dtype::kF32, layout.num_nested, shape);
  }

  void expect_part(const std::string& name, Dtype dtype, int64_t count, const std::string& shape) const {
    const TensorSpec* spec = raw_.find(name);
    if (spec != nullptr && spec->dtype == dtype && numel_of(spec->shape) == count) return;
    throw error(name, fmt::format("{}[{}] of a matrix {}", dtype_name(dtype), count, shape),
                spec == nullptr ? "no such tensor" : spec->describe());
  }

  const RawTensors& raw_;
  std::string where_;
  QuantisedTensors found_;
};

}  // namespace

QuantisedTensors find_quantised(std::span<const std::string> names, const RawTensors& raw, const std::string& where) {
  Finder finder(raw, where);
  for (const auto& name : names) {
    if (name.find(kState) != std::string::npos) finder.add_four_bits(name);
    if (name.ends_with(".SCB")) finder.add_rows(name);
  }
  return finder.take();
}

void read_quantised(const QuantisedTensor& tensor, const RawTensors& raw, int64_t begin, std::span<uint8_t> out) {
  const QuantLayout layout = QuantLayout::of(tensor.format, tensor.spec.shape);
  const int64_t end = begin + static_cast<int64_t>(out.size());
  std::ranges::fill(out, uint8_t{0});
  const auto part = [&](int64_t at, int64_t size, const auto& fill) {
    const int64_t from = std::max(at, begin), to = std::min(at + size, end);
    if (from < to) fill(from - at, out.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(to - from)));
  };
  const auto file = [&](const std::string& name) {
    return [&raw, &name](int64_t from, std::span<uint8_t> to) { raw.read(name, from, to); };
  };
  part(0, layout.code_bytes, file(tensor.spec.name));
  part(layout.scales_at, layout.num_scales * (tensor.format.nested ? 1 : 4), file(tensor.scales));
  if (!tensor.format.nested) return;
  part(layout.nested_at, layout.num_nested * 4, file(tensor.nested));
  part(layout.nested_at + layout.num_nested * 4, 4, [&](int64_t from, std::span<uint8_t> to) {
    std::ranges::copy_n(reinterpret_cast<const uint8_t*>(&tensor.offset) + from, static_cast<int64_t>(to.size()),
                        to.begin());
  });
}

void read_scales(const QuantisedTensor& tensor, const RawTensors& raw, int64_t first, std::span<float> out) {
  if (!tensor.format.nested) {
    return raw.read(tensor.scales, first * 4, {reinterpret_cast<uint8_t*>(out.data()), out.size_bytes()});
  }
  const QuantLayout layout = QuantLayout::of(tensor.format, tensor.spec.shape);
  std::vector<uint8_t> codes(out.size());
  std::vector<float> nested(static_cast<size_t>(layout.num_nested));
  raw.read(tensor.scales, first, codes);
  raw.read(tensor.nested, 0, {reinterpret_cast<uint8_t*>(nested.data()), nested.size() * 4});
  unpack_scales(codes.data(), nested.data(), tensor.offset, first, out);
}

void read_unpacked(const QuantisedTensor& tensor, const RawTensors& raw, int64_t begin, const Tensor& out) {
  const QuantLayout layout = QuantLayout::of(tensor.format, tensor.spec.shape);
  const int64_t each = layout.per_scale, end = begin + out.numel();
  const int64_t at_once = each * std::max<int64_t>(1, (int64_t{1} << 18) / each);
  const Tensor flat = out.view({out.numel()});
  const bool direct = dtype_of(out) == Dtype::kF32 || dtype_of(out) == Dtype::kBF16 || dtype_of(out) == Dtype::kF16;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  for (int64_t from = begin / each * each; from < end; from += at_once) {  // whole blocks
    const int64_t count = std::min(at_once, layout.numel - from);
    codes.resize(static_cast<size_t>(tensor.format.four_bits() ? (count + 1) / 2 : count));
    scales.resize(static_cast<size_t>(stretches(count, each)));
    raw.read(tensor.spec.name, tensor.format.four_bits() ? from / 2 : from, codes);
    read_scales(tensor, raw, from / each, scales);
    const Tensor values = empty({count}, direct ? dtype_of(out) : Dtype::kF32);
    unpack_codes(tensor.format, each, codes.data(), scales.data(), values);
    const int64_t first = std::max(begin, from), last = std::min(end, from + count);
    flat.narrow(0, first - begin, last - first).copy_(values.narrow(0, first - from, last - first));
  }
}

}  // namespace lockstep
