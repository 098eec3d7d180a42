#include "lockstep/session/rehearsed_rows.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/position_limit.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

constexpr int64_t kLooked = 64;
constexpr int64_t kTypicalTokens = 2048;

/// How much a row asks for: tokens, and what a tower reads.
int64_t weight_of(const Features& row) {
  constexpr int64_t kValuesAToken = 64;
  auto weight = static_cast<int64_t>(row.input_ids.size());
  for (const auto& block : row.media) weight += numel_of(block.shape) / kValuesAToken;
  return weight;
}

/// That a row's media bring to a slot.
int64_t values_of(const Features& row, const std::string& slot) {
  int64_t values = 0;
  for (const auto& block : row.media) values += block.slot == slot ? numel_of(block.shape) : 0;
  return values;
}

/// Over the rows of a unit.
template <typename Size>
int64_t sum_of(const std::vector<Features>& unit, const Size& size) {
  int64_t sum = 0;
  for (const auto& row : unit) sum += size(row);
  return sum;
}

int64_t tokens_of(const Features& row) { return std::ssize(row.input_ids); }

/// That a row takes in memory with the values of its media.
int64_t bytes_of(const Features& row) {
  auto bytes =
      static_cast<int64_t>((row.input_ids.size() + row.labels.size() + row.positions.size()) * sizeof(int32_t));
  for (const auto& block : row.media) bytes += numel_of(block.shape) * static_cast<int64_t>(sizeof(float));
  return bytes;
}

/// The rows with the most text, and as many drawn from all: what media make of a row is not seen in its text. Of a text that was
/// cut into several pieces are among them that are as long as one may be, whatever else is long in bytes. In the order of the
/// data; the same on every machine.
std::vector<int64_t> rows_to_look_at(const Dataset& rows) {
  constexpr int64_t kFull = 8;
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (rows.size() <= kLooked) return order;
  const auto longer = [&](int64_t a, int64_t b) {
    const int64_t bytes_a = rows.text_bytes(a), bytes_b = rows.text_bytes(b);
    return bytes_a != bytes_b ? bytes_a > bytes_b : a < b;
  };
  const auto full = order.begin() + kFull, half = order.begin() + kLooked / 2;
  std::partial_sort(order.begin(), full, order.end(), [&](int64_t a, int64_t b) {
    const bool full_a = rows.goes_on(a), full_b = rows.goes_on(b);
    return full_a != full_b ? full_a : longer(a, b);
  });
  std::partial_sort(full, half, order.end(), longer);
  std::mt19937_64 random(1);
  for (auto place = half; place != order.begin() + kLooked; ++place) {
    std::swap(*place, *(place + static_cast<std::ptrdiff_t>(random() % static_cast<uint64_t>(order.end() - place))));
  }
  order.resize(kLooked);
  std::sort(order.begin(), order.end());
  return order;
}

Features without_values(Features row) {
  for (auto& block : row.media) block.values = {};
  row.sample = {};
  return row;
}

}  // namespace

std::vector<Features> longest_rows(const Dataset& rows, const std::function<Features(const Sample&)>& features_of,
                                   size_t count) {
  const auto longer = [](const Features& a, const Features& b) { return weight_of(a) > weight_of(b); };
  std::vector<Features> longest;
  for (const int64_t row : rows_to_look_at(rows)) {
    try {
      Features features = features_of(rows.sample(row));
      longest.insert(std::upper_bound(longest.begin(), longest.end(), features, longer), std::move(features));
      if (longest.size() > count) longest.pop_back();
    } catch (const UserError&) {  // the run itself will name it
    }
  }
  return longest;
}

RowsOfStep longest_batch(const Dataset& rows, const std::function<Features(const Sample&)>& features_of,
                         int64_t batch) {
  const auto longest = longest_rows(
      rows, [&](const Sample& sample) { return without_values(features_of(sample)); }, kLooked);
  if (longest.empty()) return {};
  std::vector<Features> together;
  for (int64_t i = 0; i < std::min(batch, std::max<int64_t>(1, rows.size())); ++i) {
    together.push_back(longest[static_cast<size_t>(i) % longest.size()]);
  }
  return {together};
}

RehearsedRows RehearsedRows::of(const Dataset& rows, const Processor& processor, const ProcessOptions& options,
                                int world) {
  RehearsedRows made;
  std::optional<UserError> first;
  auto longest = longest_rows(
      rows,
      [&](const Sample& sample) {
        try {
          return without_values(processor.train_features(sample, options));
        } catch (const UserError& error) {
          if (!first) first = error;
          throw;
        }
      },
      kLooked);
  if (longest.empty() && first) throw UserError(*first);
  for (auto& row : longest) made.units_.push_back({std::move(row)});
  made.count_ = rows.size();
  made.world_ = world;
  made.source_ =
      rows.size() <= kLooked
          ? fmt::format("the longest of the data set's {} rows", rows.size())
          : fmt::format("the longest of {} rows: those with the most text, and others drawn from all", kLooked);
  return made;
}

RehearsedRows RehearsedRows::of_bins(const Dataset& rows, const Processor& processor, const ProcessOptions& options,
                                     int world, const std::vector<std::vector<int64_t>>& heaviest, int64_t count) {
  RehearsedRows made;
  for (const auto& bin : heaviest) {
    Unit& unit = made.units_.emplace_back();
    for (const int64_t row : bin) {
      unit.push_back(without_values(processor.train_features(rows.sample(row), options)));
    }
  }
  made.count_ = count;
  made.world_ = world;
  made.source_ = fmt::format("the heaviest of {} bins", count);
  return made;
}

int64_t RehearsedRows::share() const { return (count_ + world_ - 1) / world_; }

/// Of an epoch. Each batch of all ranks gives the first its rows before the others (Loader), so that at the end it has them alone.
int64_t RehearsedRows::of_first_rank(int64_t batch) const {
  const int64_t of_all = world_ * batch;
  return count_ / of_all * batch + std::min(batch, count_ % of_all);
}

RehearsedRows RehearsedRows::in_bins(int64_t tokens) const {
  RehearsedRows made = *this;
  made.units_.clear();
  // Each row as often as it fits: a bin of the longest rows, one of those with most media, one of short ones are among them.
  for (const Unit& unit : units_) {
    const int64_t length = std::max<int64_t>(1, sum_of(unit, tokens_of));
    Unit& bin = made.units_.emplace_back();
    for (int64_t i = 0; i < std::max<int64_t>(1, tokens / length); ++i) bin.insert(bin.end(), unit.begin(), unit.end());
  }
  made.source_ += fmt::format(", as often as a bin of {} tokens holds each", tokens);
  return made;
}

int64_t RehearsedRows::waiting_bytes(int64_t batch) const {
  int64_t sum = 0;
  for (const Unit& unit : units_) sum += sum_of(unit, bytes_of);
  int64_t ahead = (LoaderOptions{}.prefetch + 1) * batch;
  if (count_ > 0) ahead = std::min(ahead, of_first_rank(batch));
  return ahead * sum / std::max<int64_t>(1, std::ssize(units_));
}

std::vector<Features> RehearsedRows::looked_at() const {
  std::vector<Features> rows;
  for (const Unit& unit : units_) rows.insert(rows.end(), unit.begin(), unit.end());
  return rows;
}

RehearsedRows RehearsedRows::typical(const ModelFolder& folder, int64_t tokens) {
  const int64_t positions = folder.model.dims.max_positions;
  PositionLimit{.positions = positions, .ends = folder.model.dims.positions_end}.check_length(tokens);
  if (tokens == 0) tokens = positions > 0 ? std::min(kTypicalTokens, positions) : kTypicalTokens;
  const bool pictures = folder.sees() && folder.family.typical_row;
  RehearsedRows made;
  made.units_ = {{pictures ? folder.family.typical_row(folder.config, tokens) : typical_text_row(tokens)}};
  made.source_ = fmt::format("typical rows{}: give --dataset for those of your data",
                             made.units_.front().front().media.empty() ? "" : " with a picture each");
  return made;
}

RowsOfStep RehearsedRows::step(int64_t batch, int64_t micro_batches) const {
  return RowsOfStep(static_cast<size_t>(micro_batches), batches(batch).front());
}

std::vector<RowsOfStep> RehearsedRows::steps(int64_t batch, int64_t micro_batches) const {
  std::vector<RowsOfStep> steps;
  for (auto& rows : batches(batch)) steps.emplace_back(static_cast<size_t>(micro_batches), rows);
  return steps;
}

RowsOfStep RehearsedRows::batches(int64_t batch) const {
  if (count_ > 0) batch = std::min(batch, count_);
  RowsOfStep batches;
  std::set<Order> seen;
  for (const Order& order : orders()) {
    Order first;
    for (int64_t i = 0; i < batch; ++i) first.push_back(order[static_cast<size_t>(i) % order.size()]);
    std::sort(first.begin(), first.end());
    if (!seen.insert(first).second) continue;
    auto& rows = batches.emplace_back();
    for (const size_t unit : first) rows.insert(rows.end(), units_[unit].begin(), units_[unit].end());
  }
  return batches;
}

/// units_ by what may make a batch the heaviest; ties by what they weigh in all, as units_ stand.
std::vector<RehearsedRows::Order> RehearsedRows::orders() const {
  Order as_they_are(units_.size());
  std::iota(as_they_are.begin(), as_they_are.end(), size_t{0});
  std::vector<Order> orders{as_they_are};
  const auto add_by = [&](const std::function<int64_t(const Features&)>& size) {
    Order& order = orders.emplace_back(as_they_are);
    std::ranges::stable_sort(order, std::greater{}, [&](size_t unit) { return sum_of(units_[unit], size); });
  };
  add_by(tokens_of);
  const size_t longest = orders.back().front();
  std::set<std::string> slots;
  for (const Unit& unit : units_) {
    for (const auto& row : unit) {
      for (const auto& block : row.media) slots.insert(block.slot);
    }
  }
  for (const auto& slot : slots) add_by([&](const Features& row) { return values_of(row, slot); });
  if (slots.empty()) return orders;
  add_by([](const Features& row) { return weight_of(row) - tokens_of(row); });
  Order& beside = orders.back();
  std::erase(beside, longest);
  beside.insert(beside.begin(), longest);
  return orders;
}

}  // namespace lockstep
