#include "lockstep/data/row_verdict.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/worker.h"
#include "lockstep/data/sample.h"

namespace lockstep {
namespace {

constexpr size_t kMostNames = 50;  // of columns that are told

/// Which other stacks join (ms-swift) or leave out (LLaMA-Factory).
bool speaks_twice(const Sample& sample) {
  const auto& turns = sample.messages;
  return std::adjacent_find(turns.begin(), turns.end(), [](const Message& a, const Message& b) {
           return a.role == b.role && (a.role == "user" || a.role == "assistant");
         }) != turns.end();
}

FileVerdict judge_rows(const RowSource& source, size_t begin, size_t end) {
  FileVerdict verdict;
  for (size_t row = begin; row < end; ++row) {
    const std::string where = source.file.where(row);
    try {
      Json raw = source.file.row(row);
      source.mapping.add_found(raw, verdict.mapped);
      source.mapping.add_left_out(raw, verdict.unread);
      for (const auto& [column, usual] : source.mapping.empty() ? recased_columns(raw) : NamedColumns())
        verdict.recased.insert(fmt::format("{} as {}", column, usual));
      const Json json = mapped_row(std::move(raw), source.mapping, where);
      const Sample sample = sample_from_row(json, where, MediaFolders(source.folders.folders, /*look=*/false));
      if (verdict.unmarked.empty() && leaves_out_objects(json, sample)) verdict.unmarked = where;
      if (verdict.repeated.empty() && speaks_twice(sample)) verdict.repeated = where;
      verdict.whole.push_back(static_cast<int64_t>(row));
      for (auto& name : unread_columns(json)) {
        if (verdict.unread.size() < kMostNames) verdict.unread.insert(std::move(name));
      }
    } catch (const UserError& error) {
      std::string why = error.message();
      if (why.starts_with(where + ": ")) why = why.substr(where.size() + 2);
      verdict.broken.push_back({where, std::move(why), static_cast<int64_t>(verdict.whole.size())});
    }
  }
  return verdict;
}

/// All rows, and what the first says of them and of itself.
FileVerdict judge_first(const RowSource& source) {
  FileVerdict verdict;
  if (source.file.size() > 0) verdict = judge_rows(source, 0, 1);
  verdict.whole.resize(source.file.size());
  std::iota(verdict.whole.begin(), verdict.whole.end(), int64_t{0});
  return verdict;
}

FileVerdict judge_table(const RowSource& source) {
  FileVerdict verdict = judge_first(source);
  const std::vector<BrokenRow> first = std::exchange(verdict.broken, {});
  if (first.empty()) return verdict;
  // Unless it is that row's own fault, nothing in the file can be read.
  if (source.file.size() == 1 || !judge_rows(source, 1, 2).broken.empty()) {
    verdict.whole.clear();
    verdict.broken = first;
  }
  return verdict;
}

}  // namespace

FileVerdict judge_file(const RowSource& source) {
  const DataFile& file = source.file;
  if (!file.is_text()) return judge_table(source);
  constexpr size_t kBytesPerThread = 4 << 20, kMaxThreads = 4;
  const size_t wanted = std::min(
      {kMaxThreads, size_t{std::max(1U, std::thread::hardware_concurrency())}, 1 + file.bytes() / kBytesPerThread});
  std::vector<FileVerdict> parts(wanted);
  std::vector<std::unique_ptr<Worker>> workers;
  const size_t share = (file.size() + wanted - 1) / wanted;
  for (size_t i = 1; i < wanted; ++i) {
    workers.push_back(std::make_unique<Worker>(fmt::format("index-{}", i), [&, i](const std::stop_token&) {
      parts[i] = judge_rows(source, std::min(i * share, file.size()), std::min((i + 1) * share, file.size()));
    }));
  }
  parts[0] = judge_rows(source, 0, std::min(share, file.size()));
  for (auto& worker : workers) worker->join();
  FileVerdict all;
  for (auto& part : parts) {
    for (auto& row : part.broken) row.rows_before += static_cast<int64_t>(all.whole.size());
    all.whole.insert(all.whole.end(), part.whole.begin(), part.whole.end());
    std::move(part.broken.begin(), part.broken.end(), std::back_inserter(all.broken));
    all.unread.merge(part.unread);
    all.recased.merge(part.recased);
    all.mapped.merge(part.mapped);
    if (all.unmarked.empty()) all.unmarked = part.unmarked;
    if (all.repeated.empty()) all.repeated = part.repeated;
  }
  return all;
}

FileVerdict take_file(const RowSource& source) {
  FileVerdict verdict = judge_first(source);
  verdict.broken.clear();  // it shows when it is its turn
  return verdict;
}

Json RowSource::row(size_t index) const { return mapped_row(file.row(index), mapping, file.where(index)); }

Sample RowSource::sample(size_t index, bool looks) const {
  MediaFolders places = folders;
  places.looks = looks;
  return sample_from_row(row(index), file.where(index), places);
}

}  // namespace lockstep
