#include "lockstep/model/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/pickle_ops.h"
#include "lockstep/model/stored_tensor.h"  // kReloadHint

namespace lockstep {
namespace {

using Kind = Pickle::Kind;

constexpr size_t kMostBytes = size_t{64} << 20;    // a model of 100,000 tensors has 20 MB
constexpr size_t kMostMemory = size_t{512} << 20;  // as JsonLimits
constexpr size_t kMostDepth = 1'000'000;  // values on the stack: writers put down 1,000 before they gather them

}  // namespace

/// One pass over the operations. Each is at least a byte, so that the bound on bytes is one on steps too.
class PickleReader {
  using enum PickleOp;

 public:
  PickleReader(std::span<const std::byte> bytes, const std::string& where, std::span<const std::string_view> names)
      : bytes_(bytes), where_(where), names_(names) {}

  Pickle read() {
    if (bytes_.size() > kMostBytes) {
      refuse(fmt::format("expected at most {}, found {}", format_bytes(kMostBytes),
                         format_bytes(static_cast<int64_t>(bytes_.size()))));
    }
    for (PickleOp op = next_op(); op != kStop; op = next_op()) {
      if (!number(op) && !text(op) && !container(op) && !memo(op) && !stack(op) && !call(op)) {
        throw checkpoint_error(
            fmt::format("{}: byte {}: operation 0x{:02x} is not one of a dict of tensors in pickle's protocols 2 to 5",
                        where_, op_at_, static_cast<uint8_t>(op)),
            "nothing of it was run; load and save it again with torch.save where you trust who made it");
      }
    }
    out_.root_ = pop();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = kReloadHint) const {
    throw checkpoint_error(fmt::format("{}: byte {}: {}", where_, op_at_, what), hint);
  }

  // Bytes.

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      refuse(fmt::format("expected {} bytes more, found {}: truncated", count, bytes_.size() - at_));
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  PickleOp next_op() {
    op_at_ = at_;
    return static_cast<PickleOp>(take(1)[0]);
  }
  uint64_t little(size_t count) {
    uint64_t value = 0;
    const auto from = take(count);
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
    return value;
  }
  std::string_view characters(uint64_t count) {
    const auto from = take(count);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::string_view line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    const std::string_view found = characters(static_cast<size_t>(end - rest.begin()));
    (void)take(1);
    return found;
  }

  // The table and the stack.

  void spend(size_t bytes) {
    spent_ += bytes;
    if (spent_ > kMostMemory) refuse(fmt::format("describes more than {}", format_bytes(kMostMemory)));
  }
  void push(Pickle::Id id) {
    if (stack_.size() >= kMostDepth) refuse(fmt::format("more than {} values on the stack", kMostDepth));
    stack_.push_back(id);
  }
  void push_node(Pickle::Node node) {
    spend(sizeof(Pickle::Node) + node.parts.size() * sizeof(Pickle::Id));
    out_.nodes_.push_back(std::move(node));
    push(static_cast<Pickle::Id>(out_.nodes_.size() - 1));
  }
  Pickle::Node& node(Pickle::Id id) { return out_.nodes_[id]; }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Pickle::Id top() const {
    if (stack_.size() <= floor()) refuse("takes a value from an empty stack");
    return stack_.back();
  }
  Pickle::Id pop() {
    const Pickle::Id id = top();
    stack_.pop_back();
    return id;
  }
  /// What was put down since the last mark.
  std::vector<Pickle::Id> pop_mark() {
    if (marks_.empty()) refuse("gathers values without a mark");
    std::vector<Pickle::Id> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  std::vector<Pickle::Id> pop_last(size_t count) {
    std::vector<Pickle::Id> out(count);
    for (size_t i = count; i-- > 0;) out[i] = pop();
    return out;
  }

  // Operations, by kind; false: another's.

  void push_number(int64_t value) { push_node({.kind = Kind::kInt, .number = value}); }
  void push_long(uint64_t count) {
    if (count > sizeof(int64_t)) {
      (void)take(count);
      return push_node({.kind = Kind::kLargeInt});
    }
    const uint64_t bits = little(count);
    const int unused = static_cast<int>(64 - 8 * count);
    push_number(count == 0 ? 0
                           : std::bit_cast<int64_t>(bits << unused) >> unused);  // two's complement of `count` bytes
  }
  bool number(PickleOp op) {
    switch (op) {
      case kNone:
        push_node({.kind = Kind::kNone});
        return true;
      case kNewTrue:
      case kNewFalse:
        push_node({.kind = Kind::kBool, .number = op == kNewTrue});
        return true;
      case kBinInt1:
      case kBinInt2:
        push_number(static_cast<int64_t>(little(op == kBinInt1 ? 1 : 2)));
        return true;
      case kBinInt:
        push_number(static_cast<int32_t>(little(4)));
        return true;
      case kLong1:
      case kLong4:  // a negative length is a large one here, and more than there is
        push_long(little(op == kLong1 ? 1 : 4));
        return true;
      case kBinFloat:
        (void)take(8);
        push_node({.kind = Kind::kFloat});
        return true;
      default:
        return false;
    }
  }

  bool text(PickleOp op) {
    const auto length_bytes = [op]() -> size_t {
      switch (op) {
        case kShortBinUnicode:
        case kShortBinString:
        case kShortBinBytes:
          return 1;
        case kBinUnicode:
        case kBinString:
        case kBinBytes:
          return 4;
        case kBinUnicode8:
        case kBinBytes8:
        case kByteArray8:
          return 8;
        default:
          return 0;
      }
    }();
    if (length_bytes == 0) return false;
    const bool is_bytes = op == kShortBinBytes || op == kBinBytes || op == kBinBytes8 || op == kByteArray8;
    const std::string_view found = characters(little(length_bytes));
    push_node({.kind = is_bytes ? Kind::kBytes : Kind::kText, .text = is_bytes ? std::string_view() : found});
    return true;
  }

  void add_parts(Pickle::Id to, const std::vector<Pickle::Id>& parts, bool pairs) {
    Pickle::Node& target = node(to);
    const bool fits = pairs ? target.kind == Kind::kDict || target.kind == Kind::kCall : target.kind == Kind::kList;
    if (!fits) refuse(fmt::format("{} takes no items", out_.describe(target)));
    if (pairs && parts.size() % 2 != 0) refuse("a key without a value");
    spend(2 * parts.size() * sizeof(Pickle::Id));  // a vector that grows has room for as much again
    target.parts.insert(target.parts.end(), parts.begin(), parts.end());
  }
  bool container(PickleOp op) {
    switch (op) {
      case kEmptyTuple:
      case kEmptyList:
      case kEmptyDict:
        push_node({.kind = op == kEmptyTuple ? Kind::kTuple : op == kEmptyList ? Kind::kList : Kind::kDict});
        return true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push_node({.kind = Kind::kTuple, .parts = pop_last(op == kTuple1 ? 1 : op == kTuple2 ? 2 : 3)});
        return true;
      case kTuple:
      case kList:
        push_node({.kind = op == kTuple ? Kind::kTuple : Kind::kList, .parts = pop_mark()});
        return true;
      case kDict: {
        const auto parts = pop_mark();
        push_node({.kind = Kind::kDict});
        add_parts(top(), parts, true);
        return true;
      }
      case kAppend:
      case kSetItem: {
        const auto parts = pop_last(op == kAppend ? 1 : 2);
        add_parts(top(), parts, op == kSetItem);
        return true;
      }
      case kAppends:
      case kSetItems: {
        const auto parts = pop_mark();
        add_parts(top(), parts, op == kSetItems);
        return true;
      }
      default:
        return false;
    }
  }

  uint64_t decimal() {
    uint64_t value = 0;
    const std::string_view digits = line();
    if (digits.empty() || digits.size() > 9) refuse("expected a number of at most nine digits");
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') refuse("expected a number of at most nine digits");
      value = value * 10 + static_cast<uint64_t>(digit - '0');
    }
    return value;
  }
  void remember(uint64_t key) {
    if (memo_.insert_or_assign(key, top()).second) spend(64);  // a node of the map
  }
  void recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) refuse(fmt::format("remembers value {}, which nothing has kept", key));
    push(found->second);
  }
  bool memo(PickleOp op) {
    switch (op) {
      case kPut:
        remember(decimal());
        return true;
      case kBinPut:
      case kLongBinPut:
        remember(little(op == kBinPut ? 1 : 4));
        return true;
      case kMemoize:
        remember(memo_.size());
        return true;
      case kGet:
        recall(decimal());
        return true;
      case kBinGet:
      case kLongBinGet:
        recall(little(op == kBinGet ? 1 : 4));
        return true;
      default:
        return false;
    }
  }

  bool stack(PickleOp op) {
    switch (op) {
      case kProto:
        if (const uint64_t version = little(1); version < 2 || version > 5) {
          refuse(fmt::format("expected a pickle of protocol 2 to 5, found {}", version));
        }
        return true;
      case kFrame:
        (void)little(8);
        return true;
      case kMark:
        if (marks_.size() >= kMostDepth) refuse(fmt::format("more than {} marks on the stack", kMostDepth));
        marks_.push_back(stack_.size());
        return true;
      case kDup:
        push(top());
        return true;
      case kPop:
        if (stack_.size() > floor() || marks_.empty()) {
          (void)pop();
        } else {
          marks_.pop_back();
        }
        return true;
      case kPopMark:
        (void)pop_mark();
        return true;
      default:
        return false;
    }
  }

  /// The one place where a stranger's name comes in.
  void push_name(std::string_view module, std::string_view name) {
    for (const std::string_view expected : names_) {
      if (expected.size() == module.size() + 1 + name.size() && expected.starts_with(module) &&
          expected[module.size()] == '.' && expected.ends_with(name)) {
        return push_node({.kind = Kind::kName, .text = expected});
      }
    }
    throw checkpoint_error(
        fmt::format("{}: asks Python for {}.{}, which no dict of tensors needs: refused, and nothing of it was run",
                    where_, plain_text(module), plain_text(name)),
        "open it with nothing else unless you trust who made it; then save its tensors alone (torch.save of a dict of "
        "tensors, or safetensors), or take a safetensors version of the model");
  }
  bool call(PickleOp op) {
    switch (op) {
      case kGlobal: {
        const std::string_view module = line();
        push_name(module, line());
        return true;
      }
      case kStackGlobal: {
        const Pickle::Node &name = node(pop()), &module = node(pop());
        if (name.kind != Kind::kText || module.kind != Kind::kText) refuse("expected two texts as a name");
        push_name(module.text, name.text);
        return true;
      }
      case kReduce: {
        const Pickle::Id arguments = pop(), called = pop();
        if (node(called).kind != Kind::kName || node(arguments).kind != Kind::kTuple) {
          refuse(fmt::format("expected a call of a name with a tuple, found {} with {}", out_.describe(node(called)),
                             out_.describe(node(arguments))));
        }
        push_node({.kind = Kind::kCall, .called = called, .arguments = arguments});
        return true;
      }
      case kBuild: {
        const Pickle::Id state = pop();
        Pickle::Node& target = node(top());
        if (target.kind != Kind::kCall) refuse(fmt::format("{} takes no state", out_.describe(target)));
        target.state = state;
        return true;
      }
      case kBinPersId:
        push_node({.kind = Kind::kPersistent, .arguments = pop()});
        return true;
      default:
        return false;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::span<const std::string_view> names_;
  Pickle out_;
  size_t at_ = 0, op_at_ = 0, spent_ = 0;
  std::vector<Pickle::Id> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, Pickle::Id> memo_;  // no hash table: a stranger chooses the numbers
};

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> names) {
  return PickleReader(bytes, where, names).read();
}

}  // namespace lockstep
