// What is kept of a job that was ended: the diagnosis and every rank's rings, place and stack, as JSON files that can
// be read back.
//
// Example:
//   const PostMortem found = read_post_mortem("output/run/post_mortem");
//   std::cout << found.text;
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/guard/report.h"

namespace lockstep {

/// Where these ranks want it: a folder that is not there yet, beside the run's other files; "" when none was named.
std::string post_mortem_folder(const std::vector<RankReport>& reports);

/// Writes diagnosis.json, diagnosis.txt and rank_NNNNN.json. Never throws: the job has a worse trouble already. Returns
/// the folder, or "" when nothing could be written.
std::string write_post_mortem(const std::string& folder, const std::vector<RankReport>& reports, const Json& diagnosis);

struct PostMortem {
  std::filesystem::path folder;
  std::string text;               // the diagnosis as people read it
  std::string diagnosis_json;     // and as Diagnosis has it
  std::vector<RankReport> ranks;  // by rank
};

/// Throws UserError(kData) naming the file that is missing or malformed.
PostMortem read_post_mortem(const std::filesystem::path& folder);

}  // namespace lockstep
