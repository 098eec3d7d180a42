#include "lockstep/comm/agree.h"

#include <fmt/format.h>

#include "lockstep/base/failure.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {

void agree_on(Communicator& control, const std::vector<std::pair<std::string, std::string>>& facts) {
  for (const auto& [name, mine] : facts) {
    control.recorder().add_fact(name, mine);
    const auto all = control.all_gather_bytes(mine, "compare " + name);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw SharedError(
          ExitCode::kUsage,
          fmt::format("the ranks do not agree on the {}: rank 0 has {}, rank {} has {}", name, all[0], rank, all[rank]),
          "all ranks need the same command line, files and version of lockstep");
    }
  }
}

std::string from_rank_0(Communicator& control, const std::string& value, const Label& label) {
  return control.all_gather_bytes(control.rank() == 0 ? value : "", label).at(0);
}

}  // namespace lockstep
