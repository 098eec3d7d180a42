#include "lockstep/tasks/row_grouping.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {

void RowGrouping::check() const {
  if (packing_strategy != "best_fit" && packing_strategy != "sequential") {
    throw usage_error(
        fmt::format("--packing_strategy: expected best_fit or sequential, found \"{}\"", packing_strategy));
  }
  if (packing_length < 0) {
    throw usage_error(fmt::format("--packing_length: expected a number of tokens, found {}", packing_length));
  }
  if (packing_length > 0 && !packing) {
    throw usage_error(fmt::format("--packing_length {} is of bins, and --packing is not given", packing_length),
                      "--packing true, or leave it out");
  }
  if (group_by_length && group_by_modality_length) {
    throw usage_error("--group_by_length and --group_by_modality_length are two orders of the same rows",
                      "give one of them");
  }
  if (streaming && by_size()) {
    throw usage_error(
        fmt::format("--streaming looks at no row before it is its turn, and {} orders all by their length",
                    group_by_length ? "--group_by_length" : "--group_by_modality_length"),
        "give one of them");
  }
  if (packing && by_size()) {
    throw usage_error(fmt::format("--packing fills every bin alike: {} has nothing to order",
                                  group_by_length ? "--group_by_length" : "--group_by_modality_length"),
                      "give one of them");
  }
}

int64_t RowGrouping::bin_tokens(int64_t max_length, int64_t max_positions) const {
  for (const int64_t tokens : {packing_length, max_length, max_positions}) {
    if (tokens > 0) return tokens;
  }
  throw usage_error("--packing: the model does not say how many positions it has, so nothing says how long a bin is",
                    "--packing_length 4096, or --max_length");
}

Json RowGrouping::as_json() const {
  return {padding_free,    packing,
          packing_length,  packing_strategy,
          group_by_length, group_by_modality_length,
          streaming,       shuffle_buffer_size};
}

void require_layout(const RowGrouping& grouping, const Model& model) {
  if (grouping.layout() != RowLayout::kPacked) return;
  const bool reads = std::ranges::any_of(model.blocks, [](const auto& block) {
    return std::ranges::find(block->reads(), "row_ends") != block->reads().end();
  });
  if (reads) return;
  throw usage_error(fmt::format("--{}: rows of the family {} cannot stand behind one another, as nothing in it reads "
                                "where they end",
                                grouping.packing ? "packing" : "padding_free", model.family),
                    "leave the flag out");
}

std::vector<int64_t> GroupedRows::order(int64_t count, int64_t epoch) const {
  return grouping.streaming && shuffle ? buffered_order(count, grouping.shuffle_buffer_size, seed, epoch)
                                       : epoch_order(count, seed, epoch, shuffle);
}

std::string GroupedRows::describe() const {
  const std::string drawn = grouping.streaming && shuffle
                                ? fmt::format("drawn from a buffer of {}", grouping.shuffle_buffer_size)
                                : std::string();
  if (bins) {
    return fmt::format("in {} bins filled {} ({}){}", bins->size(),
                       grouping.sequential() ? "in order" : "best fit first", fingerprint_of(*bins),
                       drawn.empty() ? "" : ", " + drawn);
  }
  if (!drawn.empty()) return drawn;
  if (!grouping.by_size()) return "";
  return fmt::format("by {}length ({})", grouping.group_by_length ? "" : "modality and ",
                     fingerprint_of(measured->sizes));
}

std::vector<std::string> GroupedRows::notices(int64_t limit) const {
  std::vector<std::string> out;
  if (!measured) return out;
  const int64_t rows = std::ssize(measured->sizes), tokens = measured->tokens();
  std::string text = fmt::format("{} rows of {} tokens", rows - measured->unusable, tokens);
  if (bins) {
    const auto longer =
        std::ranges::count_if(measured->sizes, [&](const RowSize& size) { return size.tokens > limit; });
    text += fmt::format(" in {} bins of {} ({:.1f} % of them filled)", bins->size(), limit,
                        100.0 * static_cast<double>(tokens) / static_cast<double>(std::ssize(*bins) * limit));
    if (longer > 0) text += fmt::format("; {} rows are longer and have a bin to themselves", longer);
  }
  out.push_back(text + fmt::format("; their sizes take {}", format_bytes(measured->bytes())));
  if (bins && measured->unusable > 0) {
    out.push_back(
        fmt::format("{} rows cannot be used and are in no bin (--strict true stops at the first); one of them: {}",
                    measured->unusable, measured->reason));
  }
  return out;
}

void GroupedRows::apply(LoaderOptions& loader, int64_t rows, int64_t chunk) const {
  loader.bins = bins;
  if (grouping.streaming && shuffle) {
    loader.arranged = [own = *this, count = units(rows)](int64_t epoch) { return own.order(count, epoch); };
  }
  if (!grouping.by_size()) return;
  loader.arranged = [chunk, own = *this](int64_t epoch) {
    const std::vector<RowSize>& sizes = own.measured->sizes;
    std::vector<int64_t> order = own.order(std::ssize(sizes), epoch);
    return own.grouping.group_by_length ? by_length(sizes, chunk, std::move(order))
                                        : by_modality_and_length(sizes, chunk, order, own.seed, epoch);
  };
}

std::vector<std::vector<int64_t>> GroupedRows::heaviest_bins(size_t most) const {
  constexpr int64_t kValuesAToken = 64;
  std::vector<RowSize> sums(bins->size());
  std::vector<int64_t> weights(bins->size());
  for (size_t bin = 0; bin < bins->size(); ++bin) {
    for (const int64_t row : (*bins)[bin]) {
      const RowSize& size = measured->sizes[static_cast<size_t>(row)];
      sums[bin].tokens += size.tokens;
      sums[bin].media_values += size.media_values;
    }
    weights[bin] = sums[bin].tokens + sums[bin].media_values / kValuesAToken;
  }
  std::vector<size_t> chosen;
  const auto choose_by = [&](const std::function<int64_t(size_t)>& size) {
    std::vector<size_t> order(bins->size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, order.size()));
    std::ranges::partial_sort(order, order.begin() + count,
                              [&](size_t a, size_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; });
    for (auto bin = order.begin(); bin != order.begin() + count; ++bin) {
      if (std::ranges::find(chosen, *bin) == chosen.end()) chosen.push_back(*bin);
    }
  };
  choose_by([&](size_t bin) { return weights[bin]; });
  choose_by([&](size_t bin) { return sums[bin].tokens; });
  choose_by([&](size_t bin) { return sums[bin].media_values; });
  std::vector<std::vector<int64_t>> out;
  for (const size_t bin : chosen) out.push_back((*bins)[bin]);
  return out;
}

GroupedRows group_rows(const RowGrouping& grouping, MeasuredRows measured, int64_t limit, uint64_t seed, bool shuffle) {
  GroupedRows out{.grouping = grouping, .seed = seed, .shuffle = shuffle};
  if (measured.unusable == std::ssize(measured.sizes)) {
    throw data_error(
        fmt::format("none of the {} rows can be used; one of them: {}", measured.unusable, measured.reason));
  }
  out.measured = std::make_shared<const MeasuredRows>(std::move(measured));
  if (!grouping.packing) return out;
  const auto order = out.order(std::ssize(out.measured->sizes), /*epoch=*/0);
  out.bins = std::make_shared<const Bins>(
      fill_bins(out.measured->sizes, {.capacity = limit, .sequential = grouping.sequential()}, order));
  return out;
}

}  // namespace lockstep
