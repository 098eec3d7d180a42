#include "lockstep/guard/post_mortem.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDiagnosis = "diagnosis.json";

std::string file_of(int rank) { return fmt::format("rank_{:05}.json", rank); }

std::string dumped(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json read_part(const fs::path& path) {
  try {
    return read_json(path);
  } catch (const Error& error) {
    throw data_error(error.message(), "the file was cut or changed; the folder's other files can be read by hand");
  }
}

}  // namespace

std::string post_mortem_folder(const std::vector<RankReport>& reports) {
  const auto named = std::find_if(reports.begin(), reports.end(),
                                  [](const RankReport& report) { return !report.post_mortem_dir.empty(); });
  if (named == reports.end()) return {};
  const fs::path first = fs::path(named->post_mortem_dir) / "post_mortem";
  fs::path folder = first;
  std::error_code ignored;
  for (int next = 2; fs::exists(folder, ignored); ++next) folder = fmt::format("{}-{}", first.string(), next);
  return folder.string();
}

std::string write_post_mortem(const std::string& folder, const std::vector<RankReport>& reports,
                              const Json& diagnosis) {
  if (folder.empty()) return {};
  try {
    fs::create_directories(folder);
    for (const auto& report : reports) write_text(fs::path(folder) / file_of(report.rank), dumped(to_json(report)));
    if (diagnosis.is_object()) {
      write_text(fs::path(folder) / "diagnosis.txt", diagnosis.value("text", std::string()) + "\n");
      write_text(fs::path(folder) / kDiagnosis, dumped(diagnosis));
    }
    return folder;
  } catch (const std::exception&) {
    return {};
  }
}

PostMortem read_post_mortem(const fs::path& folder) {
  if (!fs::exists(folder / kDiagnosis)) {
    throw data_error(fmt::format("{}: expected a post-mortem folder with {}, found none", folder.string(), kDiagnosis),
                     "give the folder that the last lines of the job have named");
  }
  const Json diagnosis = read_part(folder / kDiagnosis);
  if (!diagnosis.is_object() || !diagnosis.contains("text") || !diagnosis["text"].is_string()) {
    throw data_error(fmt::format("{}: expected an object with \"text\"", (folder / kDiagnosis).string()));
  }
  PostMortem found{.folder = folder, .text = diagnosis["text"].get<std::string>(), .diagnosis_json = diagnosis.dump()};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank_") || entry.path().extension() != ".json") continue;
    const Json json = read_part(entry.path());
    try {
      found.ranks.push_back(report_from_json(json));
    } catch (const Error& error) {
      throw data_error(fmt::format("{}: {}", entry.path().string(), error.message()));
    }
  }
  std::sort(found.ranks.begin(), found.ranks.end(),
            [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace lockstep
