#include "lockstep/cli/row_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/python_literal.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/session/media_environment.h"

namespace lockstep {
namespace {

void add_naming_flags(CLI::App& app, RowFlags& flags) {
  app.add_option("--columns", flags.columns, R"(other names of columns, by the usual ones: {"my_question": "query"})")
      ->group("Data");
  app.add_option("--custom_dataset_info", flags.given.infos, "files that give data sets names, in ms-swift's form")
      ->group("Data");
  app.add_option("--dataset_dir", flags.given.dataset_dir, "folder of LLaMA-Factory's dataset_info.json")
      ->group("Data");
  app.add_option("--media_dir,--image_folder", flags.media_dir,
                 "where relative media are looked for behind the data file's folder (default: ROOT_IMAGE_DIR)")
      ->group("Data");
  app.add_option("--max_samples", flags.given.max_samples, "rows of each data set, the first; 0: all")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option(
         "--norm_bbox", flags.norm_bbox,
         "boxes of \"objects\" in thousandths of the picture (norm1000) or its pixels (none); default: the family's")
      ->check(CLI::IsMember({"norm1000", "none"}))
      ->group("Data");
}

/// As ms-swift: what ends in .txt is a file that holds it, and "\\n" a new line.
std::string read_system(std::string text) {
  if (!text.ends_with(".txt")) {
    for (size_t at = 0; (at = text.find("\\n", at)) != std::string::npos; ++at) text.replace(at, 2, "\n");
    return text;
  }
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (std::error_code none; !std::filesystem::is_regular_file(text, none)) {
    throw usage_error(fmt::format("--system {}: expected a file with the message, found none", text),
                      "a message that ends in .txt is written into a file");
  }
  return read_text(text, kMostBytes);
}

/// --columns: an object of texts, as JSON or as Python writes it.
std::vector<std::pair<std::string, std::string>> read_columns(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> columns;
  if (text.empty()) return columns;
  Json value;
  JsonFault fault;
  const bool fine = try_parse_literal(text, value, fault) && value.is_object() &&
                    std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
  if (!fine) {
    throw usage_error(
        fmt::format("--columns: expected an object of the file's names and the usual ones, found {}", cut_text(text)),
        R"(--columns '{"my_question": "query", "my_answer": "response"}')");
  }
  for (const auto& [from, to] : value.items()) columns.emplace_back(from, to.get<std::string>());
  return columns;
}

}  // namespace

void add_row_flags(CLI::App& app, RowFlags& flags) {
  app.add_option("--max_length", flags.given.max_length, "tokens of a row; 0: as many as the model has positions")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--truncation_strategy", flags.truncation_strategy,
                 "of longer rows: delete | right | left | turns (each question and answer in proportion, as "
                 "LLaMA-Factory) | split "
                 "(texts become several rows); images are never cut")
      ->check(CLI::IsMember({"delete", "right", "left", "turns", "split"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--system", flags.given.system,
                 "system message of a chat, and of rows that have none; or a file of it (.txt)")
      ->group("Data");
  app.add_option("--loss_scale", flags.loss_scale,
                 "which tokens are learnt: default (answers) | last_round | last_answer | all; ignore_empty_think, "
                 "also behind a plus")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--max_pixels", flags.given.media.shrink_to_pixels,
                 "scale larger images down to so many pixels before the model's own processor sees them; 0: never")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--strict", flags.given.strict, "stop at the first row that cannot be used, instead of skipping it")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--seed", flags.given.seed, "of the data order and of sampling")
      ->check(seed_number())
      ->capture_default_str()
      ->group("Data");
  app.add_option("--dataloader_num_workers", flags.given.num_workers, "threads that prepare rows; 0: none")
      ->check(whole_number(0, 256))
      ->capture_default_str()
      ->group("Data");
  add_naming_flags(app, flags);
}

RowOptions RowFlags::options(const Env& env) const {
  RowOptions out = given;
  out.system = read_system(given.system);
  out.columns = read_columns(columns);
  if (norm_bbox == "norm1000") out.media.box_unit = BoxUnit::kThousandths;
  if (norm_bbox == "none") out.media.box_unit = BoxUnit::kPixels;
  out.taught = Taught::from_flag(loss_scale);
  if (truncation_strategy == "right") out.truncation = Truncation::kRight;
  if (truncation_strategy == "left") out.truncation = Truncation::kLeft;
  if (truncation_strategy == "turns") out.truncation = Truncation::kTurns;
  if (truncation_strategy == "split") out.truncation = Truncation::kSplit;
  if (std::error_code none; !media_dir.empty() && !std::filesystem::is_directory(media_dir, none)) {
    throw usage_error(fmt::format("--media_dir {}: expected a folder, found none", media_dir),
                      "leave it out where media lie beside the data file");
  }
  out.root_image_dir = media_dir.empty() ? env.text("ROOT_IMAGE_DIR").value_or("") : media_dir;
  read_media_environment(env, out.media);
  return out;
}

}  // namespace lockstep
