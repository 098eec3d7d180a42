#include "lockstep/model/torch_tensor.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;
using Kind = Pickle::Kind;
using Node = Pickle::Node;

constexpr auto kOrderedDict = "collections.OrderedDict"sv, kSize = "torch.Size"sv;
constexpr auto kParameter = "torch._utils._rebuild_parameter"sv;
constexpr auto kParameterWithState = "torch._utils._rebuild_parameter_with_state"sv;
constexpr auto kFromType = "torch._tensor._rebuild_from_type_v2"sv;
constexpr auto kTensor2 = "torch._utils._rebuild_tensor_v2"sv, kTensor3 = "torch._utils._rebuild_tensor_v3"sv;

/// As storages (torch.save names a dtype by them) and by name.
constexpr std::array kDtypes{
    std::pair{"torch.FloatStorage"sv, Dtype::kF32},
    std::pair{"torch.float32"sv, Dtype::kF32},
    std::pair{"torch.BFloat16Storage"sv, Dtype::kBF16},
    std::pair{"torch.bfloat16"sv, Dtype::kBF16},
    std::pair{"torch.HalfStorage"sv, Dtype::kF16},
    std::pair{"torch.float16"sv, Dtype::kF16},
    std::pair{"torch.DoubleStorage"sv, Dtype::kF64},
    std::pair{"torch.float64"sv, Dtype::kF64},
    std::pair{"torch.LongStorage"sv, Dtype::kI64},
    std::pair{"torch.int64"sv, Dtype::kI64},
    std::pair{"torch.IntStorage"sv, Dtype::kI32},
    std::pair{"torch.int32"sv, Dtype::kI32},
    std::pair{"torch.ShortStorage"sv, Dtype::kI16},
    std::pair{"torch.int16"sv, Dtype::kI16},
    std::pair{"torch.CharStorage"sv, Dtype::kI8},
    std::pair{"torch.int8"sv, Dtype::kI8},
    std::pair{"torch.ByteStorage"sv, Dtype::kU8},
    std::pair{"torch.uint8"sv, Dtype::kU8},
    std::pair{"torch.BoolStorage"sv, Dtype::kBool},
    std::pair{"torch.bool"sv, Dtype::kBool},
    std::pair{"torch.storage.UntypedStorage"sv, Dtype::kU8},  // bytes: what is laid over them has a dtype of its own
};

std::optional<Dtype> dtype_of_name(std::string_view name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

/// The arguments of one rebuild, checked one by one.
class Rebuild {
 public:
  Rebuild(const Pickle& pickle, const std::string& who) : pickle_(pickle), who_(who) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& hint = kReloadHint) const {
    throw checkpoint_error(fmt::format("{}: {}", who_, what), hint);
  }
  const Node& argument(const Node& tuple, size_t i) const {
    if (tuple.kind != Kind::kTuple || i >= tuple.parts.size()) {
      refuse(fmt::format("expected at least {} arguments, found {}", i + 1,
                         tuple.kind == Kind::kTuple ? fmt::format("{}", tuple.parts.size()) : pickle_.describe(tuple)));
    }
    return pickle_[tuple.parts[i]];
  }
  const Node& argument(const Node& tuple, size_t i, Kind kind, const char* expected) const {
    const Node& found = argument(tuple, i);
    if (found.kind != kind) refuse(fmt::format("expected {}, found {}", expected, pickle_.describe(found)));
    return found;
  }
  /// "size" and "stride": tuples of ints, or a torch.Size of one.
  Shape numbers(const Node& tuple, size_t i, const char* what) const {
    constexpr size_t kMostDimensions = 16;
    const Node* found = &argument(tuple, i);
    if (found->kind == Kind::kCall && pickle_[found->called].text == kSize) {
      found = &argument(pickle_[found->arguments], 0);
    }
    if (found->kind != Kind::kTuple || found->parts.size() > kMostDimensions) {
      refuse(fmt::format("{}: expected a tuple of at most {} ints, found {} of {}", what, kMostDimensions,
                         pickle_.describe(*found), found->parts.size()));
    }
    Shape out;
    for (const Pickle::Id id : found->parts) {
      const Node& one = pickle_[id];
      if (one.kind != Kind::kInt || one.number < 0 || one.number > kMostElements) {
        refuse(fmt::format("{}: expected ints from 0 to 2^56, found {}", what,
                           one.kind == Kind::kInt ? fmt::format("{}", one.number) : pickle_.describe(one)));
      }
      out.push_back(one.number);
    }
    return out;
  }
  Dtype dtype(const Node& name) const {
    if (const auto known = dtype_of_name(name.text)) return *known;
    refuse(fmt::format("dtype {}; expected float32, bfloat16, float16 or float64", name.text),
           "dequantise first: load the model with its own tool and save it in bfloat16");
  }

 private:
  const Pickle& pickle_;
  const std::string& who_;
};

/// The arguments of _rebuild_tensor_v2 or _v3 within what may be wrapped around it: a Parameter, attributes of Python's.
/// Those change no number, and are left behind.
struct Described {
  const Node* arguments = nullptr;
  bool names_dtype = false;  // v3: the storage is bytes, and the dtype stands behind the hooks
};
Described unwrap(const Pickle& pickle, const Node& value, const Rebuild& rebuild) {
  constexpr int kMostWrapped = 4;
  const Node* called = nullptr;
  const Node* arguments = nullptr;
  const auto take = [&](const Node& node) {
    if (node.kind != Kind::kCall) {
      rebuild.refuse(fmt::format("expected a tensor, found {}", pickle.describe(node)),
                     "a model's file holds its tensors alone, by name: save the others elsewhere");
    }
    called = &pickle[node.called];
    arguments = &pickle[node.arguments];
  };
  take(value);
  for (int i = 0; i < kMostWrapped; ++i) {
    if (called->text == kTensor2 || called->text == kTensor3) return {arguments, called->text == kTensor3};
    if (called->text == kParameter || called->text == kParameterWithState) {
      take(rebuild.argument(*arguments, 0));
    } else if (called->text == kFromType) {  // (function, type, its arguments, attributes)
      called = &rebuild.argument(*arguments, 0, Kind::kName, "a function's name");
      arguments = &rebuild.argument(*arguments, 2, Kind::kTuple, "a tuple of arguments");
    } else {
      break;
    }
  }
  rebuild.refuse(fmt::format("expected a tensor, found a call of {}", called->text),
                 "a model's file holds its tensors alone, by name: save the others elsewhere");
}

/// ("storage", its type, key, device, number of elements). The device is where it once stood: the bytes are in the file.
constexpr size_t kMostKey = 256;  // torch.save counts
struct Storage {
  const ZipMember* member = nullptr;
  Dtype dtype = Dtype::kU8;
};
Storage storage(const Pickle& pickle, const Node& node, const Rebuild& rebuild, const StorageOf& storage_of) {
  if (node.kind != Kind::kPersistent) {
    rebuild.refuse(fmt::format("expected a storage, found {}", pickle.describe(node)));
  }
  const Node& said = pickle[node.arguments];
  if (rebuild.argument(said, 0, Kind::kText, "\"storage\"").text != "storage") {
    rebuild.refuse("expected a storage, found something else that is kept outside the pickle");
  }
  const Dtype dtype = rebuild.dtype(rebuild.argument(said, 1, Kind::kName, "a storage's type"));
  const std::string_view key = rebuild.argument(said, 2, Kind::kText, "a storage's key").text;
  const int64_t numel = rebuild.argument(said, 4, Kind::kInt, "a storage's number of elements").number;
  const ZipMember* const member = key.size() > kMostKey ? nullptr : storage_of(key, dtype);
  if (member == nullptr) rebuild.refuse(fmt::format("storage {} is not in the file", plain_text(key)));
  if (numel < 0 || numel > kMostElements || static_cast<uint64_t>(numel * dtype_bytes(dtype)) != member->size()) {
    rebuild.refuse(fmt::format("storage {}: expected {} elements of {}, found {} bytes", plain_text(key), numel,
                               dtype_name(dtype), member->size()));
  }
  return {member, dtype};
}

/// How many elements of the storage the tensor reaches over, from its first to its last; 0 when it has none.
int64_t reach(const Shape& shape, const Shape& strides, const Rebuild& rebuild) {
  int64_t numel = 1, last = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool fits = (shape[d] == 0 || numel <= kMostElements / shape[d]) &&
                      (shape[d] <= 1 || strides[d] <= (kMostElements - last) / (shape[d] - 1));
    if (!fits) rebuild.refuse(fmt::format("size {}: more elements than a file can hold", format_shape(shape)));
    numel *= shape[d];
    if (shape[d] > 1) last += (shape[d] - 1) * strides[d];
  }
  return numel == 0 ? 0 : last + 1;
}

/// The strides as StoredTensor has them: none where the elements stand behind one another.
std::vector<int64_t> simplified(const Shape& shape, Shape strides) {
  bool contiguous = true;
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0; expected *= shape[d]) {
    if (shape[d] == 1) strides[d] = 0;
    contiguous = contiguous && (shape[d] == 1 || strides[d] == expected);
  }
  return contiguous ? std::vector<int64_t>() : strides;
}

}  // namespace

std::span<const std::string_view> torch_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector out{kOrderedDict, kSize, kParameter, kParameterWithState, kFromType, kTensor2, kTensor3,
                    // Types and devices as arguments: said, and of no consequence.
                    "torch.Tensor"sv, "torch.nn.parameter.Parameter"sv, "torch.device"sv,
                    // Dtypes that are not read, so that the tensor can be named.
                    "torch.ComplexFloatStorage"sv, "torch.ComplexDoubleStorage"sv, "torch.QInt8Storage"sv,
                    "torch.QUInt8Storage"sv, "torch.QInt32Storage"sv, "torch.float8_e4m3fn"sv, "torch.float8_e5m2"sv,
                    "torch.float8_e4m3fnuz"sv, "torch.float8_e5m2fnuz"sv, "torch.float8_e8m0fnu"sv,
                    "torch.float4_e2m1fn_x2"sv, "torch.uint16"sv, "torch.uint32"sv, "torch.uint64"sv};
    for (const auto& [name, dtype] : kDtypes) out.push_back(name);
    return out;
  }();
  return names;
}

bool is_dict(const Pickle& pickle, const Node& node) {
  return node.kind == Kind::kDict ||
         (node.kind == Kind::kCall && pickle[node.called].text == kOrderedDict && pickle[node.arguments].parts.empty());
}

StoredTensor torch_tensor(const Pickle& pickle, const Node& value, const std::string& name, const std::string& who,
                          const StorageOf& storage_of) {
  const Rebuild rebuild(pickle, who);
  // (storage, offset, size, stride, requires_grad, hooks, [v3: dtype], [metadata])
  const auto [arguments, names_dtype] = unwrap(pickle, value, rebuild);
  const Storage from = storage(pickle, rebuild.argument(*arguments, 0), rebuild, storage_of);
  const int64_t offset = rebuild.argument(*arguments, 1, Kind::kInt, "an offset").number;
  StoredTensor stored{.spec = {name, from.dtype, rebuild.numbers(*arguments, 2, "size")}};
  const Shape strides = rebuild.numbers(*arguments, 3, "stride");
  if (names_dtype) stored.spec.dtype = rebuild.dtype(rebuild.argument(*arguments, 6, Kind::kName, "a dtype"));
  if (const size_t metadata = names_dtype ? 7 : 6; arguments->parts.size() > metadata) {
    const Node& marks = rebuild.argument(*arguments, metadata);
    if (marks.kind != Kind::kNone && !(is_dict(pickle, marks) && marks.parts.empty())) {
      rebuild.refuse("a tensor that is marked as negated or conjugated",
                     "save it again after .resolve_neg().resolve_conj()");
    }
  }
  const Shape& shape = stored.spec.shape;
  if (strides.size() != shape.size()) {
    rebuild.refuse(fmt::format("size {} with stride {}", format_shape(shape), format_shape(strides)));
  }
  const int64_t width = dtype_bytes(stored.spec.dtype), reached = reach(shape, strides, rebuild);
  const auto held = static_cast<int64_t>(from.member->size()) / width;
  if (reached > 0 && (offset < 0 || offset > held || reached > held - offset)) {
    rebuild.refuse(fmt::format("size {}, stride {}, offset {}: reaches beyond the {} elements of its storage",
                               format_shape(shape), format_shape(strides), offset, held));
  }
  stored.begin = from.member->begin + (reached == 0 ? 0 : static_cast<size_t>(offset * width));
  stored.end = stored.begin + static_cast<size_t>(reached * width);
  if (reached > 0) stored.strides = simplified(shape, strides);
  return stored;
}

}  // namespace lockstep
