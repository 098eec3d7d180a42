#include "lockstep/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/data_names.h"
#include "lockstep/data/loader.h"  // epoch_order
#include "lockstep/data/row_verdict.h"

namespace lockstep {

namespace {

constexpr const char* kStrictHint = "mend it, or --strict false: such rows are then skipped and counted";

MediaFolders folders_of(const std::string& file, const std::vector<std::string>& others) {
  std::vector<std::filesystem::path> all{std::filesystem::absolute(file).parent_path()};
  for (const auto& other : others) {
    if (!other.empty()) all.push_back(std::filesystem::absolute(other));
  }
  all.push_back(std::filesystem::current_path());
  return {std::move(all), true};
}

/// N of them, each as often as the others or once more; `draws`: those once more are chosen by `seed`, as ms-swift does.
std::vector<size_t> chosen_of(size_t rows, int64_t count, const DatasetOptions& options) {
  const size_t wanted = count < 0 || rows == 0 ? rows : static_cast<size_t>(count);
  std::vector<size_t> chosen;
  chosen.reserve(wanted);
  while (chosen.size() + rows <= wanted && rows > 0) {
    for (size_t i = 0; i < rows; ++i) chosen.push_back(i);
  }
  const size_t rest = wanted - chosen.size();
  if (rest == 0) return chosen;
  const auto order = epoch_order(static_cast<int64_t>(rows), options.seed, 0, options.draws);
  std::vector<size_t> last(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rest));
  std::ranges::sort(last);  // chosen at random, kept in the order of the file
  chosen.insert(chosen.end(), last.begin(), last.end());
  return chosen;
}

std::string hash_of(std::string_view bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

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
  std::vector<RowSource> files;
  std::vector<std::pair<uint32_t, uint32_t>> rows;  // file, row in file; whole ones only
  std::vector<BrokenRow> broken;
  std::vector<std::string> notices;
  std::set<std::string> mapped;  // columns of --columns that a row has
  uint64_t hash = 0xCBF29CE484222325;

  /// Whole rows of all the files that are one data set.
  void add(const std::string& argument, const DatasetOptions& options) {
    const size_t broken_before = broken.size();
    NamedData data = find_data(argument, options);
    std::move(data.told.begin(), data.told.end(), std::back_inserter(notices));
    std::vector<std::pair<uint32_t, uint32_t>> own;
    for (const auto& file : data.files) {
      add_file({.file = DataFile(file),
                .mapping = data.mapping,
                .folders = folders_of(file, {data.media_dir, options.root_image_dir})},
               options, own);
    }
    std::vector<size_t> chosen = chosen_of(own.size(), data.count, options);
    if (options.max_samples > 0) chosen.resize(std::min(chosen.size(), static_cast<size_t>(options.max_samples)));
    if (options.draws && data.count > 0 && own.size() > 0 && chosen.size() % own.size() != 0) {
      notices.push_back(
          fmt::format("{}: {} of {} rows, chosen at random by --data_seed {} as ms-swift does; the first ones "
                      "are taken with --dataset_shuffle false",
                      data.name, chosen.size(), own.size(), options.seed));
    }
    place_broken(broken_before, chosen, own.size());
    for (const size_t row : chosen) rows.push_back(own[row]);
    mix_in(hash, fmt::format("{} {}", data.count < 0 ? chosen.size() : own.size(), chosen.size()));
    if (options.draws && data.count > 0) mix_in(hash, fmt::format("drawn by {}", options.seed));
  }

  /// Of a part of a file's rows: what is broken behind them was not asked for. Of rows in an order of their own it stands behind all.
  void place_broken(size_t from, const std::vector<size_t>& chosen, size_t all) {
    const auto begin = broken.begin() + static_cast<std::ptrdiff_t>(from);
    const auto base = static_cast<int64_t>(rows.size());
    const bool in_order = std::ranges::is_sorted(chosen);
    if (chosen.size() < all && in_order) {
      const int64_t end = base + (chosen.empty() ? 0 : static_cast<int64_t>(chosen.back()) + 1);
      broken.erase(std::find_if(begin, broken.end(), [&](const BrokenRow& row) { return row.rows_before >= end; }),
                   broken.end());
    }
    for (auto row = broken.begin() + static_cast<std::ptrdiff_t>(from); row != broken.end(); ++row) {
      const auto place = static_cast<size_t>(row->rows_before - base);
      row->rows_before =
          base + (in_order ? std::ranges::lower_bound(chosen, place) - chosen.begin() : std::ssize(chosen));
    }
  }

  void add_file(RowSource source, const DatasetOptions& options, std::vector<std::pair<uint32_t, uint32_t>>& own) {
    const std::string name = source.file.name();
    FileVerdict verdict = options.streaming ? take_file(source) : judge_file(source);
    const std::string content = source.file.content_hash(/*whole=*/!options.streaming);
    if (const std::string& problem = source.file.problem(); !problem.empty())
      verdict.broken.push_back({name, problem, static_cast<int64_t>(verdict.whole.size())});
    source.file.forget();
    if (!verdict.broken.empty() && (options.strict || (verdict.whole.empty() && !options.may_be_empty))) {
      const BrokenRow& first = verdict.broken.front();
      throw data_error(fmt::format("{}: {}", first.where, first.why),
                       options.strict ? std::string(kStrictHint)
                                      : fmt::format("none of its {} rows can be read", source.file.size()));
    }
    if (verdict.whole.empty() && !options.may_be_empty)
      throw data_error(fmt::format("--dataset {}: expected rows, found an empty file", name));
    for (auto& row : verdict.broken) row.rows_before += static_cast<int64_t>(rows.size() + own.size());
    for (const int64_t row : verdict.whole)
      own.emplace_back(static_cast<uint32_t>(files.size()), static_cast<uint32_t>(row));
    if (!verdict.recased.empty()) {
      notices.push_back(
          fmt::format("{}: columns are read by other letters: {}", name, fmt::join(verdict.recased, ", ")));
      mix_in(hash, fmt::format("{}", fmt::join(verdict.recased, ", ")));
    }
    if (!verdict.unread.empty()) {
      notices.push_back(fmt::format("{}: not read: {}", name, fmt::join(verdict.unread, ", ")));
    }
    if (!verdict.unmarked.empty()) {
      notices.push_back(fmt::format("{}: not read: \"objects\" of rows whose texts have neither {} nor {}, as {}", name,
                                    kBoxMark, kRefMark, verdict.unmarked));
    }
    if (!verdict.repeated.empty()) {
      notices.push_back(fmt::format(
          "{}: two turns of one side behind one another, as in {}, are two turns for the chat template too; "
          "ms-swift joins them, and LLaMA-Factory leaves such rows out",
          name, verdict.repeated));
    }
    mapped.merge(verdict.mapped);
    mix_in(hash, std::filesystem::path(name).filename().string());
    mix_in(hash, fmt::format("{} {}", content, verdict.whole.size()));
    if (!source.mapping.empty()) mix_in(hash, source.mapping.as_text());
    std::move(verdict.broken.begin(), verdict.broken.end(), std::back_inserter(broken));
    files.push_back(std::move(source));
  }

  void tell_unknown_columns(const std::vector<std::pair<std::string, std::string>>& columns) {
    for (const auto& [name, usual] : columns) {
      if (mapped.contains(name)) continue;
      notices.push_back(
          fmt::format("--columns: no row that was looked at has \"{}\", which is to be \"{}\"", name, usual));
    }
  }
};

Dataset::Dataset(const std::vector<std::string>& paths, const DatasetOptions& options) {
  if (paths.empty()) throw data_error("expected at least one data file, found none", "pass --dataset train.jsonl");
  const auto impl = std::make_shared<Impl>();
  for (const auto& path : paths) impl->add(path, options);
  if (!options.streaming) impl->tell_unknown_columns(options.columns);
  *this = all_of(impl);
}

Dataset Dataset::of_text(const std::string& name, std::string array, const DatasetOptions& options) {
  const auto impl = std::make_shared<Impl>();
  const std::filesystem::path folder = options.root_image_dir.empty() ? "." : options.root_image_dir;
  impl->add_file({.file = DataFile(name, std::move(array)),
                  .mapping = {.columns = options.columns},
                  .folders = {{std::filesystem::absolute(folder)}, true}},
                 options, impl->rows);
  impl->tell_unknown_columns(options.columns);
  mix_in(impl->hash, fmt::format("{} {}", impl->rows.size(), impl->rows.size()));  // as of a file without a count
  return all_of(impl);
}

Dataset Dataset::all_of(const std::shared_ptr<const Impl>& impl) {
  std::vector<int64_t> rows(impl->rows.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return Dataset(impl, std::move(rows));
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
  const auto whole = [&, file = file, row = row] { return impl_->files[file].sample(row, /*looks=*/true); };
  Sample sample = pieces_.empty() ? whole()
                                  : piece_of(pieces_[static_cast<size_t>(index)],
                                             {impl_, rows_[static_cast<size_t>(index)]}, whole);
  sample.row = index;
  return sample;
}

Sample Dataset::sample_or_name(int64_t index) const {
  try {
    return sample(index);
  } catch (const UserError&) {
    Sample named;
    named.where = where(index);
    named.row = index;
    return named;
  }
}

int64_t Dataset::text_bytes(int64_t index) const {
  const auto [file, row] = impl_->rows.at(static_cast<size_t>(rows_.at(static_cast<size_t>(index))));
  const auto bytes = static_cast<double>(impl_->files[file].file.text_bytes(row));
  if (pieces_.empty() || pieces_[static_cast<size_t>(index)].end == 0) return static_cast<int64_t>(bytes);
  const RowPiece& piece = pieces_[static_cast<size_t>(index)];  // whose length may be counted in tokens
  const RowPiece& last = *(std::ranges::upper_bound(pieces_, piece.row, {}, &RowPiece::row) - 1);
  return static_cast<int64_t>(bytes * static_cast<double>(piece.end - piece.begin) / static_cast<double>(last.end));
}

bool Dataset::goes_on(int64_t index) const {
  const auto next = static_cast<size_t>(index) + 1;
  return next < pieces_.size() && pieces_[next].row == pieces_[next - 1].row;
}

std::string Dataset::where(int64_t index) const {
  const auto [file, row] = impl_->rows.at(static_cast<size_t>(rows_.at(static_cast<size_t>(index))));
  return impl_->files[file].file.where(row);
}

const std::vector<BrokenRow>& Dataset::broken() const {
  static const std::vector<BrokenRow> none;
  return lists_broken_ ? impl_->broken : none;
}

const std::vector<std::string>& Dataset::notices() const { return impl_->notices; }

void Dataset::in_file_order(const std::function<void(int64_t index)>& whole,
                            const std::function<void(const BrokenRow& row)>& broken) const {
  auto next = this->broken().begin();
  for (int64_t row = 0; row <= size(); ++row) {
    for (; next != this->broken().end() && (row == size() || next->rows_before <= row); ++next) broken(*next);
    if (row < size()) whole(row);
  }
}

std::string Dataset::fingerprint() const {
  uint64_t hash = impl_->hash;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (pieces_.empty() || pieces_[i].begin == 0) hash = (hash ^ static_cast<uint64_t>(rows_[i])) * 0x100000001B3;
  }
  return fmt::format("{:016x}", hash);
}

std::string Dataset::describe_pieces() const {
  if (std::ranges::none_of(pieces_, [](const RowPiece& piece) { return piece.end > 0; })) return "";
  uint64_t hash = 0;
  for (const RowPiece& piece : pieces_) mix_in(hash, fmt::format("{} {} {}", piece.row, piece.begin, piece.end));
  return fmt::format("in {} pieces ({:016x})", pieces_.size(), hash);
}

std::string Dataset::media_fingerprint() const {
  constexpr int64_t kRowsLookedAt = 256;
  std::string all;
  for (const auto& file : impl_->files)
    for (const auto& folder : file.folders.folders) all += folder.string() + "\n";
  const int64_t stride = std::max<int64_t>(1, size() / kRowsLookedAt);
  for (int64_t row = 0; row < size(); row += stride) {
    for (const auto& name : media_references(sample_or_name(row))) {
      if (name.starts_with("data:")) continue;  // its bytes are the row's
      std::error_code missing;
      const auto bytes = std::filesystem::file_size(name, missing);
      const auto changed = std::filesystem::last_write_time(name, missing).time_since_epoch().count();
      all += missing ? fmt::format("{} -\n", name) : fmt::format("{} {} {}\n", name, bytes, changed);
    }
  }
  return hash_of(all);
}

}  // namespace lockstep
