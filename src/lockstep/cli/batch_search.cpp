#include "lockstep/cli/batch_search.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/rehearsed_rows.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/watch/memory_watch.h"

namespace lockstep {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB); }

const CudaApi* gpu_of(const Job& job) { return job.device == "cpu" ? nullptr : &require_cuda_library(); }

int64_t peak_bytes(const Job& job) {
  const CudaApi* gpu = gpu_of(job);
  return gpu != nullptr ? gpu->memory(job.world.local_rank).peak_reserved_bytes : read_memory().peak_bytes;
}

void begin_peak(const Job& job) {
  if (const CudaApi* gpu = gpu_of(job)) {
    gpu->reset_peak(job.world.local_rank);
  } else {
    reset_peak();
  }
}

/// What this rank may use at its peak, of all that it has now and all that is free, shared by the node's ranks.
int64_t limit_of(const Job& job, double fraction) {
  if (const CudaApi* gpu = gpu_of(job)) {
    const GpuMemory memory = gpu->memory(job.world.local_rank);
    return static_cast<int64_t>(fraction * static_cast<double>(memory.free_bytes + memory.reserved_bytes));
  }
  const double share = static_cast<double>(machine_memory().available_bytes) / std::max(1, job.world.local_size);
  return static_cast<int64_t>(fraction * (share + static_cast<double>(read_memory().resident_bytes)));
}

/// Least and largest of a number over the ranks.
std::pair<int64_t, int64_t> extremes(Communicator& control, int64_t mine, const Label& label) {
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (const auto& other : control.all_gather_bytes(bytes, label)) {
    int64_t value = 0;
    std::memcpy(&value, other.data(), sizeof value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return {least, most};
}

/// How far the tries that fitted promise to reach, at most fourfold.
int64_t promised(const std::vector<BatchTry>& fitted, int64_t limit) {
  const BatchTry &first = fitted.front(), &last = fitted.back();
  if (fitted.size() < 2) return 2 * last.batch;
  const double a_row = static_cast<double>(last.bytes - first.bytes) / static_cast<double>(last.batch - first.batch);
  const double most = 3.0 * static_cast<double>(last.batch);
  const double more = a_row > 0 ? static_cast<double>(limit - last.bytes) / a_row : most;
  return last.batch + static_cast<int64_t>(std::min(more, most));
}

}  // namespace

void add_batch_flags(CLI::App& app, const std::string& names, const std::string& help, const std::string& group,
                     BatchFlags& flags) {
  const auto read = [](std::string& text) -> std::string {
    if (text == "auto") {
      text = std::to_string(kAutoBatch);
      return {};
    }
    int64_t rows = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), rows);
    if (failure == std::errc() && end == text.data() + text.size() && rows >= 1 && rows <= kMostRowsAtOnce) return {};
    return fmt::format("expected a number from 1 to {} or auto, found \"{}\"", kMostRowsAtOnce, text);
  };
  app.add_option("--memory_fraction", flags.memory_fraction, "of the memory that a rank has, for a batch size of auto")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option(names, flags.size, help + "; auto: the largest that fits")
      ->transform(CLI::Validator(read, "N|auto"))
      ->capture_default_str()
      ->group(group);
}

BatchChoice search_batch_size(const BatchLimits& limits,
                              const std::function<std::optional<int64_t>(int64_t batch)>& attempt) {
  BatchChoice choice;
  std::vector<BatchTry> fitted;
  int64_t too_large = limits.largest + 1;  // the least that is known not to do
  const auto try_one = [&](int64_t batch) {
    const auto bytes = attempt(batch);
    const BatchTry one{.batch = batch, .bytes = bytes.value_or(0), .fits = bytes && *bytes <= limits.limit_bytes};
    choice.tries.push_back(one);
    if (one.fits) {
      fitted.push_back(one);
    } else {
      too_large = std::min(too_large, batch);
    }
    return one.fits;
  };
  if (!try_one(1)) {
    throw UserError(
        ExitCode::kMemory,
        fmt::format("batch size auto: one row needs {}, and {} may be used on a rank",
                    choice.tries[0].bytes > 0 ? gib(choice.tries[0].bytes) : "more than there is",
                    gib(limits.limit_bytes)),
        "shorten rows (--max_length, --max_pixels), share the model (--deepspeed zero3, more ranks), or raise "
        "--memory_fraction");
  }
  while (fitted.back().batch + 1 < too_large) {
    const int64_t here = fitted.back().batch;
    const bool failed = too_large <= limits.largest;
    if (failed && too_large - here <= std::max<int64_t>(1, here / 16)) break;
    int64_t next = std::min(promised(fitted, limits.limit_bytes), too_large - 1);
    if (failed) next = std::clamp(next, here + 1, here + (too_large - here) / 2);
    if (next <= here) break;
    if (try_one(next) && next - here <= here / 16) break;  // what is left is less than that
  }
  choice.batch = fitted.back().batch;
  return choice;
}

std::optional<Features> longest_row(const Dataset& rows, const std::function<Features(const Sample&)>& features_of) {
  auto longest = longest_rows(rows, features_of, 1);
  return longest.empty() ? std::nullopt : std::optional(std::move(longest.front()));
}

int64_t agree_batch_size(Job& job, double fraction, int64_t largest,
                         const std::function<int64_t(int64_t batch)>& work) {
  Communicator& control = job.control();
  if (const CudaApi* gpu = gpu_of(job)) gpu->set_memory_fraction(job.world.local_rank, fraction);
  const int64_t limit = extremes(control, limit_of(job, fraction), "memory of the ranks").first;
  const BatchChoice choice =
      search_batch_size({.limit_bytes = limit, .largest = largest}, [&](int64_t batch) -> std::optional<int64_t> {
        int64_t mine = 0;
        try {
          begin_peak(job);
          const int64_t reserved = work(batch);
          mine = peak_bytes(job) + reserved;
        } catch (const std::exception& error) {
          if (describe_failure(error).code != ExitCode::kMemory) throw;
          mine = -1;
        }
        const auto [least, most] = extremes(control, mine, "peak of a batch size");
        return least < 0 ? std::nullopt : std::optional(most);
      });
  if (job.reports()) {
    for (const auto& one : choice.tries) {
      std::cerr << fmt::format("batch size {:>5}: {} at the peak{}\n", one.batch,
                               one.bytes > 0 ? gib(one.bytes) : "out of memory", one.fits ? "" : ", too much");
    }
    std::cerr << fmt::format("batch size {} on a rank ({} may be used: --memory_fraction {})\n", choice.batch,
                             gib(limit), fraction);
  }
  return choice.batch;
}

}  // namespace lockstep
