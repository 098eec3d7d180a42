// The faults that fault_worker can make, and what the roll call must say of each.
#pragma once

#include <string_view>
#include <vector>

#include "step.h"

namespace lockstep::faults {

/// A fault, and what must be said of it. Texts are regular expressions; an empty one is not asked for.
struct Expected {
  std::string_view kind;         // fault_name, "fine" when the job must go on, "notice" when it must be told besides
  std::string_view op, label;    // of the call named
  std::string_view place, says;  // in the places and sides; in the whole text
  std::string_view fix;          // in the fix or hint
};

using Edit = void (*)(Script& script, Rank& rank);

struct Fault {
  std::string_view name, summary;
  Expected expected;
  Edit inject = nullptr;  // the culprit's step, from kFaultStep on
  Edit others = nullptr;  // that of the others, in the same steps
  int culprit = 1;
  int64_t steps = 0;              // 0: as many as it takes
  double patience = 600;          // for ranks that are busy
  std::string_view bar = "none";  // mismatch, death, stopped, stall
};

std::vector<Fault> ends();
std::vector<Fault> mismatches();
std::vector<Fault> structures();
std::vector<Fault> paces();
std::vector<Fault> all_faults();

}  // namespace lockstep::faults
