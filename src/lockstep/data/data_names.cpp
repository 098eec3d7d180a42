#include "lockstep/data/data_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/dataset_info.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array kEndings = {".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow"};

bool holds_rows(const fs::path& file) {
  const std::string ending = file.extension().string(), name = file.filename().string();
  return std::ranges::find(kEndings, ending) != kEndings.end() && !name.starts_with('.') &&
         !name.starts_with("dataset_info") && name != "dataset_dict.json" && name != "state.json";
}

/// "rows.jsonl#500": the path and the number of rows wanted (-1: all). A file that has '#' in its own name wins.
std::pair<std::string, int64_t> split_count(const std::string& path) {
  const size_t hash = path.rfind('#');
  if (hash == std::string::npos || fs::exists(path)) return {path, -1};
  int64_t count = 0;
  const char *begin = path.data() + hash + 1, *end = path.data() + path.size();
  const auto [rest, error] = std::from_chars(begin, end, count);
  constexpr int64_t kMostRows = 100'000'000;  // each takes 8 bytes from the beginning
  if (error != std::errc() || rest != end || count < 1 || count > kMostRows) {
    throw data_error(fmt::format("--dataset {}: expected path#N with N a number from 1 to {}, found \"#{}\"", path,
                                 kMostRows, begin));
  }
  return {path.substr(0, hash), count};
}

bool has_word(const std::string& name, const std::string& word) {
  for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const bool begins = at == 0 || !is_letter(name[at - 1]);
    const bool ends = at + word.size() >= name.size() || !is_letter(name[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

/// Of a folder the files of one split, as the datasets library takes them: those whose names say so, or, where no name speaks of
/// splits, all as train.
std::vector<std::string> files_of_split(const fs::path& folder, const std::string& split) {
  std::vector<std::string> all, chosen;
  bool any = false;
  std::vector<fs::path> places{folder, folder / "data", folder / split};
  for (const auto& place : places) {
    std::error_code ignored;
    if (!fs::is_directory(place, ignored)) continue;
    for (const auto& file : fs::directory_iterator(place)) {
      if (!file.is_regular_file() || !holds_rows(file.path())) continue;
      const std::string stem = file.path().stem().string();
      all.push_back(file.path().string());
      const bool in_split = place == folder / split && place != folder;
      for (const char* word : {"train", "test", "validation", "valid", "val", "dev", "eval"})
        any = any || has_word(stem, word);
      any = any || in_split;
      if (in_split || has_word(stem, split)) chosen.push_back(all.back());
    }
  }
  std::vector<std::string>& files = any ? chosen : all;
  std::ranges::sort(files);
  if (!any && split != "train") files.clear();
  return std::move(files);
}

std::vector<std::string> files_of_folder(const std::string& name, const fs::path& folder, const std::string& subset,
                                         const std::string& split) {
  const fs::path place = subset.empty() || subset == "default" ? folder : folder / subset;
  if (!fs::is_directory(place)) {
    std::vector<std::string> subsets;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory()) subsets.push_back(entry.path().filename().string());
    }
    std::ranges::sort(subsets);
    throw data_error(fmt::format("--dataset {}: expected a subset that is a folder in {}, found no \"{}\"", name,
                                 folder.string(), subset),
                     subsets.empty() ? "" : "there are " + cut_text(join(subsets, ", ")));
  }
  std::vector<std::string> files = files_of_split(place, split);
  if (files.empty()) {
    throw data_error(
        fmt::format("--dataset {}: expected files of the split \"{}\" in {}, found none", name, split, place.string()),
        fmt::format("rows are read from {}", fmt::join(kEndings, ", ")));
  }
  return files;
}

void add_files(NamedData& data, const std::string& path, const std::string& subset, const std::string& split) {
  if (!fs::is_directory(path)) {
    data.files.push_back(path);
    return;
  }
  const auto files = files_of_folder(data.name, path, subset, split.empty() ? "train" : split);
  data.files.insert(data.files.end(), files.begin(), files.end());
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(fs::path(file).filename().string());
  data.told.push_back(fmt::format("{}: a folder, of which {} {} read: {}", data.name, names.size(),
                                  names.size() == 1 ? "file is" : "files are", cut_text(join(names, ", "))));
}

std::vector<std::string> subsets_in(const std::string& text) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (end > begin) all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

/// Whether one of the files of names knows it.
bool add_entry(NamedData& data, const std::string& name, const std::vector<std::string>& subsets,
               const std::vector<fs::path>& files, std::vector<std::string>& known) {
  for (const auto& file : files) {
    const auto entry = find_entry(file, name, known);
    if (!entry) continue;
    data.mapping = entry->mapping;
    data.media_dir =
        entry->media_dir.empty() ? fs::absolute(file).parent_path().string() : fs::absolute(entry->media_dir).string();
    if (data.count < 0) data.count = entry->count;
    std::vector<std::string> wanted = subsets;
    if (wanted.empty() && !entry->subset.empty()) wanted = {entry->subset};
    if (wanted.empty()) wanted = entry->subsets;
    if (!fs::exists(entry->path)) {
      throw data_error(
          fmt::format("{}: \"{}\": expected the file or folder {}, found none", file.string(), name, entry->path),
          "paths are taken from the folder of that file");
    }
    if (wanted.empty()) wanted.emplace_back();
    for (const auto& subset : wanted) add_files(data, entry->path, subset, entry->split);
    return true;
  }
  return false;
}

}  // namespace

NamedData find_data(const std::string& argument, const DatasetOptions& options) {
  for (const auto& file : options.infos) {
    if (!fs::is_regular_file(file)) {
      throw data_error(fmt::format("--custom_dataset_info {}: expected a file, found none", file));
    }
  }
  if (!options.dataset_dir.empty() && !fs::is_directory(options.dataset_dir)) {
    throw data_error(fmt::format("--dataset_dir {}: expected a folder, found none", options.dataset_dir));
  }
  NamedData data;
  std::tie(data.name, data.count) = split_count(argument);
  data.mapping.columns = options.columns;
  // ms-swift's "HF::" and "MS::" say from which hub a name comes: here it is a file's or an entry's.
  for (const char* hub : {"HF::", "MS::", "hf::", "ms::"}) {
    if (data.name.starts_with(hub) && !fs::exists(data.name)) data.name.erase(0, std::string_view(hub).size());
  }
  std::vector<fs::path> files(options.infos.begin(), options.infos.end()), own;
  if (const fs::path file = fs::path(options.dataset_dir) / "dataset_info.json";
      !options.dataset_dir.empty() && fs::exists(file))
    own.push_back(file);
  std::vector<std::string> known;
  const RowMapping given = data.mapping;
  const auto named = [&](const std::string& name, const std::vector<std::string>& subsets,
                         const std::vector<fs::path>& where) {
    if (!add_entry(data, name, subsets, where, known)) return false;
    data.mapping.columns.insert(data.mapping.columns.end(), given.columns.begin(), given.columns.end());
    return true;
  };
  // LLaMA-Factory looks a name up in the folder of data sets alone, ms-swift among files first.
  if (named(data.name, {}, own)) return data;
  if (fs::exists(data.name)) {
    add_files(data, data.name, "", "");
    return data;
  }
  files.insert(files.end(), own.begin(), own.end());
  const size_t colon = data.name.rfind(':');
  const std::string path = data.name.substr(0, colon);
  const auto subsets =
      colon == std::string::npos ? std::vector<std::string>() : subsets_in(data.name.substr(colon + 1));
  if (colon != std::string::npos && fs::is_directory(path)) {
    for (const auto& subset : subsets) add_files(data, path, subset, "");
    if (!subsets.empty()) return data;
  }
  if (named(data.name, {}, files) || (colon != std::string::npos && named(path, subsets, files))) return data;
  std::string hint = "data sets are local files or folders";
  if (!known.empty()) {
    const std::string meant = nearest_name(data.name, known);
    hint = meant.empty() ? fmt::format("names that are known: {}", cut_text(join(known, ", ")))
                         : fmt::format("did you mean \"{}\"?", meant);
  }
  throw data_error(fmt::format("--dataset {}: no such file", data.name), hint);
}

}  // namespace lockstep
