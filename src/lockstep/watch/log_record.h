// The lines of logging.jsonl as values: ms-swift v4's key names plus our own, in both directions.
//
// Example:
//   const Json line = to_record(step_done);        // {"loss": ..., "global_step/max_steps": "10/300", ...}
//   if (auto step = read_step_record(line)) plot(*step);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// "1d 2h 3m 4s" in whole seconds, as ms-swift prints elapsed_time and remaining_time.
std::string swift_duration(double seconds);

/// `value` to 9 significant digits: enough to tell any two fp32 losses apart, short enough to read.
double nine_digits(double value);

Json to_record(const StepDone& step);
Json to_record(const EvalDone& eval, int64_t max_steps);

/// nullopt when the record is of another kind.
std::optional<StepDone> read_step_record(const Json& record);
std::optional<EvalDone> read_eval_record(const Json& record);

/// The step, memory and eval records up to `last_step`, in file order. A line cut short by a crash, records of later
/// steps and the closing records of an earlier run are left out. Empty when there is no file.
std::vector<Json> read_records(const std::filesystem::path& path, int64_t last_step);

}  // namespace lockstep
