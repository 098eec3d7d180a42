#include "lockstep/data/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/worker.h"
#include "lockstep/data/loader.h"  // epoch_order
#include "lockstep/data/row_index.h"

namespace lockstep {

namespace {

/// One file, its rows found but not kept in memory.
struct DataFile {
  std::string name;  // as the person wrote it, without "#N"
  std::filesystem::path base_dir;
  MappedFile map;
  bool is_array = false;
  std::vector<RowSpan> rows;

  std::string_view bytes() const { return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()}; }
  std::string_view text(size_t row) const { return bytes().substr(rows[row].offset, rows[row].length); }
  /// "train.jsonl:17"; elements of an array are counted, since many may share a line: "train.json[16]".
  std::string where(size_t row) const {
    return is_array ? fmt::format("{}[{}]", name, row) : fmt::format("{}:{}", name, rows[row].line);
  }
};

/// The parser's words without its prefix ("[json.exception...] parse error at line 1, column 5: "), and where it stood.
std::string describe_fault(const JsonFault& fault, std::string_view text, const RowSpan& span, bool is_array) {
  const size_t byte = std::min(text.size(), fault.byte);
  const std::string_view before = text.substr(0, byte);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  // Columns are characters: continuation bytes of UTF-8 do not count.
  const auto column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start), before.end(),
                                        [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  std::string_view what = fault.why;
  if (const size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
  constexpr size_t kLongest = 160;
  std::string words(what.substr(0, kLongest));
  // The parser quotes what it read, which may be the very bytes that are no text: a message must be printable.
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  const std::string place =
      is_array ? fmt::format("line {} column {}", span.line + lines, column) : fmt::format("column {}", column);
  return fmt::format("{}: not valid JSON ({})", place, words);
}

constexpr const char* kStrictHint = "mend it, or --strict false: such rows are then skipped and counted";

Sample parse_row(const DataFile& file, size_t row) {
  Json json;
  const std::string_view text = file.text(row);
  JsonFault fault;
  if (!try_parse_json(text, json, fault)) {
    throw data_error(fmt::format("{}: {}", file.where(row), describe_fault(fault, text, file.rows[row], file.is_array)),
                     "a row is one JSON object");
  }
  return sample_from_row(json, file.where(row), file.base_dir);
}

/// Which rows of a file are whole. The row's place is cut from the reason, since BrokenRow names it apart.
struct Verdict {
  std::vector<int64_t> whole;
  std::vector<BrokenRow> broken;
};

Verdict judge_rows(const DataFile& file, size_t begin, size_t end) {
  Verdict verdict;
  for (size_t row = begin; row < end; ++row) {
    try {
      parse_row(file, row);
      verdict.whole.push_back(static_cast<int64_t>(row));
    } catch (const UserError& error) {
      const std::string where = file.where(row);
      std::string why = error.message();
      if (why.starts_with(where + ": ")) why = why.substr(where.size() + 2);
      verdict.broken.push_back({where, std::move(why), static_cast<int64_t>(verdict.whole.size())});
    }
  }
  return verdict;
}

/// Parses every row once, on several threads when that pays; the result does not depend on their number.
Verdict judge_file(const DataFile& file) {
  constexpr size_t kBytesPerThread = 4 << 20, kMaxThreads = 4;
  const size_t wanted = std::min({kMaxThreads, size_t{std::max(1U, std::thread::hardware_concurrency())},
                                  1 + file.bytes().size() / kBytesPerThread});
  std::vector<Verdict> parts(wanted);
  std::vector<std::unique_ptr<Worker>> workers;
  const size_t share = (file.rows.size() + wanted - 1) / wanted;
  for (size_t i = 1; i < wanted; ++i) {
    workers.push_back(std::make_unique<Worker>(fmt::format("index-{}", i), [&, i](const std::stop_token&) {
      parts[i] = judge_rows(file, std::min(i * share, file.rows.size()), std::min((i + 1) * share, file.rows.size()));
    }));
  }
  parts[0] = judge_rows(file, 0, std::min(share, file.rows.size()));
  for (auto& worker : workers) worker->join();
  Verdict all;
  for (auto& part : parts) {
    for (auto& row : part.broken) row.rows_before += static_cast<int64_t>(all.whole.size());
    all.whole.insert(all.whole.end(), part.whole.begin(), part.whole.end());
    std::move(part.broken.begin(), part.broken.end(), std::back_inserter(all.broken));
  }
  return all;
}

/// "rows.jsonl#500": the path and the number of rows wanted (-1: all). A file that has '#' in its own name wins.
std::pair<std::string, int64_t> split_count(const std::string& path) {
  const size_t hash = path.rfind('#');
  if (hash == std::string::npos || std::filesystem::exists(path)) return {path, -1};
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

/// What a file is that is no file on a disk.
std::string kind_of(const std::filesystem::file_status& status) {
  switch (status.type()) {
    case std::filesystem::file_type::directory:
      return "a folder";
    case std::filesystem::file_type::fifo:
      return "a pipe";
    case std::filesystem::file_type::character:
    case std::filesystem::file_type::block:
      return "a device";
    case std::filesystem::file_type::socket:
      return "a socket";
    default:
      return "something else";
  }
}

/// Data of another kind would be told as row 1 that is not valid JSON.
void refuse_other_formats(const std::string& name, std::string_view bytes) {
  struct Format {
    std::string_view begin, kind;
    const char* cure;
  };
  static constexpr std::array kFormats = {
      Format{"\x1f\x8b", "gzip data", "gunzip it first"},
      Format{"\x28\xb5\x2f\xfd", "zstd data", "unzstd it first"},
      Format{"\xfd"
             "7zXZ",
             "xz data", "unxz it first"},
      Format{"BZh", "bzip2 data", "bunzip2 it first"},
      Format{"PK\x03\x04", "a zip archive", "unzip it first"},
      Format{"PAR1", "a Parquet file", "write its rows as JSON lines first"},
      Format{"ARROW1", "an Arrow file", "write its rows as JSON lines first"},
      Format{"\xff\xfe", "UTF-16 text", "save it as UTF-8"},
      Format{"\xfe\xff", "UTF-16 text", "save it as UTF-8"},
  };
  for (const Format& format : kFormats) {
    if (!bytes.starts_with(format.begin)) continue;
    throw data_error(fmt::format("--dataset {}: expected JSONL or JSON text, found {}", name, format.kind),
                     format.cure);
  }
}

DataFile open_file(const std::string& name, const std::string& root_image_dir) {
  std::error_code ignored;
  const auto status = std::filesystem::status(name, ignored);
  if (!std::filesystem::exists(status)) {
    throw data_error(fmt::format("--dataset {}: no such file", name), "data sets are local JSONL or JSON files");
  }
  if (!std::filesystem::is_regular_file(status)) {
    const bool folder = std::filesystem::is_directory(status);
    throw data_error(
        fmt::format("--dataset {}: expected a JSONL or JSON file, found {}", name, kind_of(status)),
        folder ? "name the file in it" : "rows are read more than once and by every rank: write them to a file first");
  }
  const auto folder = std::filesystem::absolute(name).parent_path();
  return {.name = name,
          .base_dir = root_image_dir.empty() ? folder : std::filesystem::absolute(root_image_dir),
          .map = MappedFile(name),
          .rows = {}};
}

std::string hash_of(std::string_view bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

/// What tells a file that is not read from another.
std::string hash_of_ends(std::string_view bytes) {
  constexpr size_t kEnd = 1 << 20;
  const std::string_view head = bytes.substr(0, kEnd), tail = bytes.substr(bytes.size() - std::min(kEnd, bytes.size()));
  return fmt::format("{} {} {}", bytes.size(), hash_of(head), hash_of(tail));
}

/// All rows, unread.
Verdict take_rows(const DataFile& file) {
  Verdict verdict;
  verdict.whole.resize(file.rows.size());
  std::iota(verdict.whole.begin(), verdict.whole.end(), int64_t{0});
  return verdict;
}

/// FNV-1a, 64 bits.
void mix_in(uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  hash = (hash ^ 0xFF) * 0x100000001B3;  // ends a field: "ab"+"c" differs from "a"+"bc"
}

}  // namespace

UserError refused_by_strict(const UserError& error) {
  UserError told(error.code(), error.message(),
                 error.hint().empty() ? kStrictHint : fmt::format("{}; {}", error.hint(), kStrictHint));
  for (const auto& frame : error.frames()) told.add_frame(frame);
  return told;
}

struct Dataset::Impl {
  std::vector<DataFile> files;
  std::vector<std::pair<uint32_t, uint32_t>> rows;  // file, row in file; whole ones only
  std::vector<BrokenRow> broken;
  uint64_t hash = 0xCBF29CE484222325;

  void add(const std::string& path, const DatasetOptions& options) {
    const auto [name, count] = split_count(path);
    DataFile file = open_file(name, options.root_image_dir);
    refuse_other_formats(name, file.bytes());
    file.is_array = !name.ends_with(".jsonl") && is_json_array(file.bytes());
    std::string problem;
    file.rows = file.is_array ? index_array(file.bytes(), problem) : index_lines(file.bytes());
    Verdict verdict = options.streaming ? take_rows(file) : judge_file(file);
    const std::string content = options.streaming ? hash_of_ends(file.bytes()) : hash_of(file.bytes());
    if (!problem.empty()) verdict.broken.push_back({name, problem, static_cast<int64_t>(verdict.whole.size())});
    file.map.forget(0, file.bytes().size());
    if (!verdict.broken.empty() && (options.strict || (verdict.whole.empty() && !options.may_be_empty))) {
      const BrokenRow& first = verdict.broken.front();
      throw data_error(
          fmt::format("{}: {}", first.where, first.why),
          options.strict ? std::string(kStrictHint) : fmt::format("none of its {} rows can be read", file.rows.size()));
    }
    if (verdict.whole.empty() && !options.may_be_empty)
      throw data_error(fmt::format("--dataset {}: expected rows, found an empty file", name));
    for (auto& row : verdict.broken) row.rows_before += static_cast<int64_t>(rows.size());
    const auto wanted = count < 0 || verdict.whole.empty() ? verdict.whole.size() : static_cast<size_t>(count);
    for (size_t i = 0; i < wanted; ++i) {
      rows.emplace_back(static_cast<uint32_t>(files.size()),
                        static_cast<uint32_t>(verdict.whole[i % verdict.whole.size()]));
    }
    mix_in(hash, std::filesystem::path(name).filename().string());
    mix_in(hash, fmt::format("{} {} {}", content, verdict.whole.size(), wanted));
    std::move(verdict.broken.begin(), verdict.broken.end(), std::back_inserter(broken));
    files.push_back(std::move(file));
  }
};

Dataset::Dataset(const std::vector<std::string>& paths, const DatasetOptions& options) {
  if (paths.empty()) throw data_error("expected at least one data file, found none", "pass --dataset train.jsonl");
  const auto impl = std::make_shared<Impl>();
  for (const auto& path : paths) impl->add(path, options);
  rows_.resize(impl->rows.size());
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = static_cast<int64_t>(i);
  impl_ = impl;
}

Dataset::Dataset(std::shared_ptr<const Impl> impl, std::vector<int64_t> rows)
    : impl_(std::move(impl)), rows_(std::move(rows)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

int64_t Dataset::size() const { return static_cast<int64_t>(rows_.size()); }

Sample Dataset::sample(int64_t index) const {
  if (index < 0 || index >= size())
    throw std::out_of_range(fmt::format("row {} of a data set of {} rows", index, size()));
  const auto [file, row] = impl_->rows[static_cast<size_t>(rows_[static_cast<size_t>(index)])];
  Sample sample = parse_row(impl_->files[file], row);
  sample.row = index;
  return sample;
}

int64_t Dataset::text_bytes(int64_t index) const {
  const auto [file, row] = impl_->rows.at(static_cast<size_t>(rows_.at(static_cast<size_t>(index))));
  return static_cast<int64_t>(impl_->files[file].rows[row].length);
}

std::string Dataset::where(int64_t index) const {
  const auto [file, row] = impl_->rows.at(static_cast<size_t>(rows_.at(static_cast<size_t>(index))));
  return impl_->files[file].where(row);
}

const std::vector<BrokenRow>& Dataset::broken() const { return impl_->broken; }

void Dataset::in_file_order(const std::function<void(int64_t index)>& whole,
                            const std::function<void(const BrokenRow& row)>& broken) const {
  auto next = impl_->broken.begin();
  for (int64_t row = 0; row <= size(); ++row) {
    for (; next != impl_->broken.end() && (row == size() || next->rows_before <= row); ++next) broken(*next);
    if (row < size()) whole(row);
  }
}

std::string Dataset::fingerprint() const {
  uint64_t hash = impl_->hash;
  for (const int64_t row : rows_) hash = (hash ^ static_cast<uint64_t>(row)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

std::string Dataset::media_fingerprint() const {
  constexpr int64_t kRowsLookedAt = 256;
  std::string all;
  for (const auto& file : impl_->files) all += file.base_dir.string() + "\n";
  const int64_t stride = std::max<int64_t>(1, size() / kRowsLookedAt);
  for (int64_t row = 0; row < size(); row += stride) {
    for (const auto& name : media_references(this->sample(row))) {
      if (name.starts_with("data:")) continue;  // its bytes are the row's
      std::error_code missing;
      const auto bytes = std::filesystem::file_size(name, missing);
      const auto changed = std::filesystem::last_write_time(name, missing).time_since_epoch().count();
      all += missing ? fmt::format("{} -\n", name) : fmt::format("{} {} {}\n", name, bytes, changed);
    }
  }
  return hash_of(all);
}

std::pair<Dataset, Dataset> Dataset::split(Dataset whole, double ratio, uint64_t seed) {
  if (!(ratio > 0.0 && ratio < 1.0) || whole.size() < 2) {
    throw data_error(fmt::format("expected a split ratio between 0 and 1 and at least 2 rows, found {} and {} rows",
                                 ratio, whole.size()));
  }
  const auto wanted = std::llround(ratio * static_cast<double>(whole.size()));
  const auto second_size = static_cast<std::ptrdiff_t>(std::clamp<int64_t>(wanted, 1, whole.size() - 1));
  std::vector<int64_t> order = epoch_order(whole.size(), seed, 0, true);
  for (auto& row : order) row = whole.rows_[static_cast<size_t>(row)];
  std::vector<int64_t> second(order.end() - second_size, order.end());
  order.resize(order.size() - second.size());
  // Chosen at random, kept in the order of the file.
  std::sort(order.begin(), order.end());
  std::sort(second.begin(), second.end());
  return {Dataset(whole.impl_, std::move(order)), Dataset(whole.impl_, std::move(second))};
}

}  // namespace lockstep
