// What this rank's calls cost, by label and operation: calls, bytes and seconds. Costs a look-up and two clocks a call,
// and no allocation once a label is known.
//
// Thread rules: one thread makes calls; lines() may be asked from any, at any time.
//
// Example:
//   const size_t line = figures.line_of(Op::kAllGather, "text.layers.7 gather");
//   figures.add(line, {.bytes = 8000, .exposed = waited});
//   for (const auto& of_label : figures.lines()) tell(of_label);
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/backend.h"
#include "lockstep/guard/call.h"

namespace lockstep {

/// One call. `exposed`: how long the rank stood in it. `times`: of the call as a whole.
struct CallCost {
  int64_t bytes = 0;
  Clock::duration exposed{};
  TransportTimes times{};

  /// The rank stood in the launch so long.
  void launched(Clock::duration took);
  /// And so long until the end; `after_launch`: what the transport tells.
  void ended(Clock::duration took, const TransportTimes& after_launch);
};

/// The sum over the calls of one label and operation.
struct LabelFigures {
  Op op = Op::kBarrier;
  std::string label;
  int64_t calls = 0, bytes = 0, busy_ns = 0, exposed_ns = 0, late_ns = 0;
  bool busy_told = true, late_told = true;  // by every call

  void add(const CallCost& cost);
};

class Figures {
 public:
  /// The most labels that are kept apart; later ones share a line, so that labels which never repeat cost no memory.
  static constexpr size_t kMostLines = 16384;

  size_t line_of(Op op, std::string_view label);
  void add(size_t line, const CallCost& cost);

  std::vector<LabelFigures> lines() const;  // in the order of their first calls; only those with a call that has ended
  double seconds() const { return seconds_since(since_); }

 private:
  struct KeyView {
    Op op;
    std::string_view label;
  };
  struct Key {
    Op op;
    std::string label;
  };
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    size_t operator()(const KeyView& key) const;
    size_t operator()(const Key& key) const { return (*this)(KeyView{key.op, key.label}); }
  };
  struct Same {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    static KeyView view(const Key& key) { return {key.op, key.label}; }
    static KeyView view(const KeyView& key) { return key; }
    template <typename Left, typename Right>
    bool operator()(const Left& left, const Right& right) const;
  };

  const Clock::time_point since_ = Clock::now();
  std::unordered_map<Key, size_t, Hash, Same> known_;  // only the calling thread's
  mutable std::mutex mutex_;                           // guards lines_
  std::vector<LabelFigures> lines_;
};

}  // namespace lockstep
