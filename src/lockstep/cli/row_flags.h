// Flags of how rows are read and prepared.
#pragma once

#include <string>

#include "lockstep/base/env.h"
#include "lockstep/session/row_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

/// What --dataset and its like take: docs/rows.md.
inline constexpr const char* kRowFiles =
    "files of rows (JSONL, JSON, CSV, TSV, TXT, Parquet, Arrow), folders of them, or names of a --custom_dataset_info";

struct RowFlags {
  RowOptions given;  // what a flag says as it is
  std::string truncation_strategy = "delete", loss_scale = "default";
  std::string columns, norm_bbox, media_dir;

  /// With ROOT_IMAGE_DIR and what read_media_environment reads. Throws UserError(kUsage).
  RowOptions options(const Env& env) const;
};
void add_row_flags(CLI::App& app, RowFlags& flags);

}  // namespace lockstep
