#include "lockstep/comm/gather_nested.h"

#include <cstring>
#include <map>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

enum class Kind : uint8_t { kNone, kBool, kInteger, kNumber, kString, kTensor, kList, kTuple, kDict };

class Writer {
 public:
  void value(const Value& value) {
    if (const Tensor* t = value.tensor()) return tensor(*t);
    if (const auto* items = value.list()) return sequence(Kind::kList, *items);
    if (const auto* items = value.tuple()) return sequence(Kind::kTuple, items->items);
    if (const auto* entries = value.dict()) return dict(*entries);
    if (const auto* text = value.string()) {
      plain(Kind::kString);
      return bytes(*text);
    }
    if (const auto* integer = value.integer()) return scalar(Kind::kInteger, *integer);
    if (const auto* number = value.number()) return scalar(Kind::kNumber, *number);
    if (const auto* boolean = value.boolean()) return scalar(Kind::kBool, *boolean);
    plain(Kind::kNone);
  }
  std::string take() { return std::move(out_); }

 private:
  template <typename T>
  void plain(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void scalar(Kind kind, T value) {
    plain(kind);
    plain(value);
  }
  void bytes(std::string_view text) {
    plain(static_cast<int64_t>(text.size()));
    out_.append(text);
  }
  void sequence(Kind kind, const Value::List& items) {
    scalar(kind, static_cast<int64_t>(items.size()));
    for (const auto& item : items) value(item);
  }
  void dict(const Value::Dict& entries) {
    scalar(Kind::kDict, static_cast<int64_t>(entries.size()));
    for (const auto& [key, entry] : entries) {
      bytes(key);
      value(entry);
    }
  }
  void tensor(const Tensor& tensor) {
    const Tensor host = tensor.detach().to(at::kCPU).contiguous();
    scalar(Kind::kTensor, dtype_of(host));
    plain(static_cast<int64_t>(host.dim()));
    for (const int64_t size : host.sizes()) plain(size);
    out_.append(static_cast<const char*>(host.data_ptr()), static_cast<size_t>(host.nbytes()));
  }

  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Value value() {
    switch (plain<Kind>()) {
      case Kind::kNone:
        return {};
      case Kind::kBool:
        return plain<bool>();
      case Kind::kInteger:
        return plain<int64_t>();
      case Kind::kNumber:
        return plain<double>();
      case Kind::kString:
        return bytes();
      case Kind::kTensor:
        return tensor();
      case Kind::kList:
        return items();
      case Kind::kTuple:
        return Value::Tuple{items()};
      case Kind::kDict:
        return dict();
    }
    check(false, "gather_nested: unknown kind in the received bytes");
    return {};
  }

 private:
  std::string_view take(size_t size) {
    check(size <= text_.size(), "gather_nested: the received bytes end early");
    const std::string_view part = text_.substr(0, size);
    text_.remove_prefix(size);
    return part;
  }
  template <typename T>
  T plain() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string bytes() { return std::string(take(static_cast<size_t>(plain<int64_t>()))); }
  Value::List items() {
    Value::List list(static_cast<size_t>(plain<int64_t>()));
    for (auto& item : list) item = value();
    return list;
  }
  Value::Dict dict() {
    Value::Dict entries(static_cast<size_t>(plain<int64_t>()));
    for (auto& [key, entry] : entries) {
      key = bytes();
      entry = value();
    }
    return entries;
  }
  Value tensor() {
    const auto dtype = plain<Dtype>();
    Shape shape(static_cast<size_t>(plain<int64_t>()));
    for (auto& size : shape) size = plain<int64_t>();
    Tensor made = empty(shape, dtype);
    const auto content = take(static_cast<size_t>(made.nbytes()));
    if (!content.empty()) std::memcpy(made.data_ptr(), content.data(), content.size());
    return made;
  }

  std::string_view text_;
};

[[noreturn]] void refuse(const std::map<std::string, std::vector<std::string>>& holders, const Label& label) {
  std::string groups;
  for (const auto& [structure, ranks] : holders) {
    groups += fmt::format("\n    rank{} {}: {}", ranks.size() == 1 ? "" : "s", join(ranks, ", "), structure);
  }
  const std::string_view file(label.site.file_name());
  throw CollectiveError(fmt::format("gather of \"{}\" at {}:{}: the structures differ between ranks:{}", label.text,
                                    file.substr(file.rfind('/') + 1), label.site.line(), groups),
                        "return the same structure and dtypes on every rank; only first dimensions and the lengths of "
                        "uniform lists may differ. Metadata beside the labels belongs in a field of its own");
}

void compare_structures(const std::vector<std::string>& structures, const Label& label) {
  std::map<std::string, std::vector<std::string>> holders;
  for (size_t r = 0; r < structures.size(); ++r) holders[structures[r]].push_back(std::to_string(r));
  for (auto one = holders.begin(); one != holders.end(); ++one) {
    for (auto other = std::next(one); other != holders.end(); ++other) {
      if (!merged_structure(one->first, other->first)) refuse(holders, label);
    }
  }
}

}  // namespace

std::vector<Value> gather_nested(Communicator& comm, const Value& mine, const Label& label) {
  compare_structures(comm.all_gather_bytes(mine.structure(), label), label);
  Writer writer;
  writer.value(mine);
  std::vector<Value> all;
  for (const auto& bytes : comm.all_gather_bytes(writer.take(), label)) all.push_back(Reader(bytes).value());
  return all;
}

}  // namespace lockstep
