// A way that the processor decides, unless a test does.
//
// Example:
//   using PackedProducts = ProcessorChoice<struct PackedProductsName>;
//   if (PackedProducts::made(/*by_processor=*/has_avx512)) …
//   const PackedProducts packed(true);   // in a test: whatever the processor, while it lives
#pragma once

#include <atomic>

namespace lockstep {

template <typename Name>
class [[nodiscard]] ProcessorChoice {
 public:
  /// For tests: the whole process chooses so while it lives.
  explicit ProcessorChoice(bool wanted) : before_(wanted_.exchange(wanted ? 1 : 0)) {}
  ~ProcessorChoice() { wanted_ = before_; }
  ProcessorChoice(const ProcessorChoice&) = delete;
  ProcessorChoice& operator=(const ProcessorChoice&) = delete;

  static bool made(bool by_processor) {
    const int wanted = wanted_.load(std::memory_order_relaxed);
    return wanted == kNobody ? by_processor : wanted == 1;
  }

 private:
  static constexpr int kNobody = -1;
  inline static std::atomic<int> wanted_{kNobody};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
  int before_;
};

}  // namespace lockstep
