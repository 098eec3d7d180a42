#include "lockstep/comm/step_contract.h"

#include <cstring>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Throws when a field that must agree does not: the ranks by what they hold, the smaller groups being the suspects.
void compare(const std::vector<StepContract>& all, uint64_t StepContract::*field, const std::string& what,
             const std::string& hint) {
  std::map<uint64_t, std::vector<std::string>> holders;
  for (size_t r = 0; r < all.size(); ++r) holders[all[r].*field].push_back(std::to_string(r));
  if (holders.size() < 2) return;
  std::string groups;
  for (const auto& [value, ranks] : holders) {
    groups += fmt::format("{}{:016x} on rank{} {}", groups.empty() ? "" : ", ", value, ranks.size() == 1 ? "" : "s",
                          fmt::join(ranks, " "));
  }
  throw CollectiveError(fmt::format("{} differs between ranks: {}", what, groups), hint);
}

}  // namespace

Agreement agree(Communicator& control, const StepContract& mine) {
  constexpr int64_t kFields = sizeof(StepContract) / sizeof(int64_t);
  const Tensor record = zeros({kFields}, Dtype::kI64);
  std::memcpy(record.data_ptr(), &mine, sizeof(mine));
  const Tensor records = zeros({kFields * control.size()}, Dtype::kI64);
  control.all_gather(records, record, "step contract").wait();
  std::vector<StepContract> all(static_cast<size_t>(control.size()));
  std::memcpy(all.data(), records.data_ptr(), all.size() * sizeof(StepContract));
  compare(all, &StepContract::plan_hash, "the plan",
          "all ranks must be started with the same flags, model folder and version");
  compare(all, &StepContract::fingerprint, "the sequence of collective calls so far",
          "this is a bug in lockstep; please report it with the command line");
  Agreement agreed;
  for (const auto& one : all) {
    agreed.modalities |= Modalities::from_bits(one.modalities);
    agreed.stop = agreed.stop || one.stop != 0;
    agreed.more = agreed.more || one.more != 0;
    agreed.target_tokens += one.target_tokens;
    agreed.input_tokens += one.input_tokens;
    agreed.rows += one.rows;
    agreed.speech_targets += one.speech_targets;
    agreed.correct_tokens += one.correct_tokens;
    agreed.skipped += one.skipped;
  }
  return agreed;
}

}  // namespace lockstep
