#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/verify/parts.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWhatIsOne =
    "such a folder holds reference.safetensors beside checkpoint/, images/ or audio/, or fuzz.jsonl, or a template "
    "with its "
    "cases; tests/oracles/make_oracles.py writes them";

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool has_template(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja" && fs::exists(fs::path(entry.path()).replace_extension(".jsonl")))
      return true;
  }
  return false;
}

/// What makes the rows of this folder, or nothing when it is only a folder of such folders.
std::function<void()> part_of(const fs::path& folder, Dtype compute, VerifyReport& report) {
  const bool has_reference = fs::exists(folder / "reference.safetensors");
  if (has_reference && fs::exists(folder / "checkpoint")) {
    const Json meta = read_json(folder / "reference.json");
    if (meta.contains("quantised")) return [=, &report] { verify_quantised(folder, compute, report); };
    if (meta.contains("adapters")) return [=, &report] { verify_adapters(folder, compute, report); };
    if (!meta.contains("hyper")) return [=, &report] { verify_family(folder, compute, report); };
    if (compute == Dtype::kF32) return [=, &report] { verify_training(folder, report); };
    return [&report] { report.not_compared("training", "all", "its reference is float32: run without --dtype"); };
  }
  if (has_reference && fs::exists(folder / "images")) return [=, &report] { verify_images(folder, report); };
  if (has_reference && fs::exists(folder / "audio")) return [=, &report] { verify_audio(folder, report); };
  if (has_reference) {
    return [&report] { report.not_built("all", "reference.safetensors", "this kind of folder is not known"); };
  }
  if (fs::exists(folder / "fuzz.jsonl")) return [=, &report] { verify_tokenizer(folder, report); };
  if (has_template(folder)) return [=, &report] { verify_chat_templates(folder, report); };
  return {};
}

void verify_below(const fs::path& folder, Dtype compute, VerifyReport& report) {
  report.set_folder(folder.string());
  try {
    if (const auto part = part_of(folder, compute, report)) {
      part();
      return;
    }
  } catch (const UserError& e) {
    report.fails("-", "-", e.what());
    return;
  } catch (const Json::exception& e) {
    report.fails("-", "-", fmt::format("the folder's JSON has not the expected form: {}", e.what()));
    return;
  }
  for (const auto& child : folders_in(folder)) {
    if (child.filename() != "checkpoint" && child.filename() != "media") verify_below(child, compute, report);
  }
}

}  // namespace

void verify_any(const fs::path& folder, Dtype compute, VerifyReport& report) {
  if (!fs::is_directory(folder)) {
    throw usage_error(fmt::format("{}: expected an oracle folder, found {}", folder.string(), found_for_folder(folder)),
                      kWhatIsOne);
  }
  verify_below(folder, compute, report);
  if (!report.empty()) return;
  throw usage_error(
      fmt::format("{}: expected an oracle folder, or folders of such, found no case in it", folder.string()),
      kWhatIsOne);
}

}  // namespace lockstep
