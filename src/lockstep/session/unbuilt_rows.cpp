#include "lockstep/session/unbuilt_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/together.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/compatibility.h"

namespace lockstep {
namespace {

constexpr int64_t kLooks = 1000;

}  // namespace

std::string rows_with_media(Job& job, const Model& model, const Dataset& rows) {
  const Modalities unread = unread_media(model);
  if (unread.empty()) return {};
  const std::string reason = left_out_reason(model);
  std::string told;
  together(job.control(), "looking for rows with pictures", [&] {
    if (!job.reports()) return;
    const int64_t looks = std::min(rows.size(), kLooks);
    int64_t found = 0;
    std::string first;
    for (int64_t i = 0; i < looks; ++i) {
      const int64_t row = i * rows.size() / looks;
      try {
        const Sample sample = rows.sample(row);
        if (describe_media(sample, unread).empty()) continue;
        if (found++ == 0) first = sample.where;
      } catch (const UserError&) {
        continue;  // it is named when it is its turn
      }
    }
    if (found == 0) return;
    const std::string hint = left_out_cure(model) + " to train on them and to ask about them";
    if (found == rows.size()) {
      throw data_error(fmt::format("none of the {} rows can be used: all have media (the first: {}), and {}",
                                   rows.size(), first, reason),
                       hint);
    }
    told = fmt::format("{} of {} rows that were looked at have media (the first: {}) and are left out: {}; {}", found,
                       looks, first, reason, hint);
  });
  return told;
}

}  // namespace lockstep
