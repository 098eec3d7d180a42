// What `lockstep verify` found: a row for each thing compared, and what was not compared, with the reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// How near a value must be: largest and mean absolute difference; cosine where that is what counts (0: not asked).
struct Tolerance {
  double max = 0, mean = 0, cosine = 0;
};

enum class VerifyVerdict : uint8_t { kHolds, kFails, kNotBuilt, kNotCompared };

struct VerifyRow {
  std::string folder, name, tensor;
  double difference = 0, tolerance = 0;
  VerifyVerdict verdict = VerifyVerdict::kFails;
  std::string note;
};

class VerifyReport {
 public:
  void set_folder(std::string folder) { folder_ = std::move(folder); }

  /// Compares in float64. `mask` (undefined, or i64 [B,T]): only positions with 1 count. Shapes that differ, NaN and
  /// infinity fail.
  void compare(const std::string& name, const std::string& tensor, const Tensor& expected, const Tensor& found,
               const Tolerance& tolerance, const Tensor& mask);
  void compare(const std::string& name, const std::string& tensor, const Tensor& expected, const Tensor& found,
               const Tolerance& tolerance);
  /// A number that was measured elsewhere: holds when it is at most the tolerance.
  void measured(const std::string& name, const std::string& tensor, double difference, double tolerance,
                const std::string& note = {});
  void fails(const std::string& name, const std::string& tensor, const std::string& note);
  void not_built(const std::string& name, const std::string& tensor, const std::string& note);
  void not_compared(const std::string& name, const std::string& tensor, const std::string& note);

  bool empty() const { return rows_.empty(); }
  int64_t count(VerifyVerdict verdict) const;
  bool holds() const;  // something was compared and nothing failed
  std::string table() const;
  std::string summary() const;
  Json json() const;

 private:
  void add(const std::string& name, const std::string& tensor, double difference, double tolerance,
           VerifyVerdict verdict, const std::string& note);
  std::string folder_;
  std::vector<VerifyRow> rows_;
};

}  // namespace lockstep
