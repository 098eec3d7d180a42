#include "lockstep/session/batch_search.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/together.h"
#include "lockstep/session/placement.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/session/session.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kForecastMargin = 1.03;  // peaks of GPUs are held to so much of what was foreseen (docs/gpu.md)

std::string gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB); }

/// Of the process, or of its fullest GPU.
int64_t peak_of(const Job& job) {
  if (job.on_cpu()) return read_memory().peak_bytes;
  int64_t most = 0;
  for (const auto& gpu : job.gpus()) most = std::max(most, gpu_memory(gpu).peak_allocated_bytes);
  return most;
}

/// Blocks that an earlier try has left would be of the wrong sizes, and in the way of this one.
void begin_peak(const Job& job) {
  if (job.on_cpu()) reset_peak();
  for (const auto& gpu : job.gpus()) {
    empty_gpu_caches(gpu);
    reset_gpu_peak(gpu);
  }
}

/// What a GPU may hold of this rank's tensors, within the limit that was given for it.
int64_t limit_of_gpu(const std::string& gpu, double fraction) {
  const GpuMemory memory = gpu_memory(gpu);
  const auto part = static_cast<int64_t>(fraction * static_cast<double>(memory.free_bytes + memory.reserved_bytes));
  const auto device = DeviceMemory::of_gpu(gpu_of(gpu).value());
  return device ? std::min(part, device->limit()) : part;
}

/// What this rank may use at its peak, of all that it has now and all that is free, shared by the node's ranks.
int64_t limit_of(const Job& job, double fraction) {
  if (!job.on_cpu()) {
    int64_t least = DeviceMemory::kNoLimit;
    for (const auto& gpu : job.gpus()) least = std::min(least, limit_of_gpu(gpu, fraction));
    return least;
  }
  const double share = static_cast<double>(machine_memory().available_bytes) / std::max(1, job.world.local_size);
  const int64_t resident = settled_bytes();
  const auto part = static_cast<int64_t>(fraction * (share + static_cast<double>(resident)));
  const auto& host = DeviceMemory::host();
  if (host->limit() == DeviceMemory::kNoLimit) return part;
  return std::min(part, host->limit() + resident - host->alive_bytes());  // --memory_limit leaves that for tensors
}

/// Of a rank's try: its peak, -1 where it found no memory, and how many calls between the ranks it has entered so far.
struct Tried {
  int64_t peak = 0, calls = 0;
};

/// Of all ranks, in their order.
template <typename Fact>
std::vector<Fact> of_all(Communicator& control, const Fact& mine, const Label& label) {
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  std::vector<Fact> facts;
  for (const auto& other : control.all_gather_bytes(bytes, label)) {
    std::memcpy(&facts.emplace_back(), other.data(), sizeof(Fact));
  }
  return facts;
}

/// Where all found no memory at one place, and so at one call, they go on with another batch.
void require_in_step(const std::vector<Tried>& ranks, int64_t batch) {
  const auto [fewest, most] = std::ranges::minmax_element(ranks, {}, &Tried::calls);
  if (fewest->calls == most->calls) return;
  throw SharedError(
      ExitCode::kMemory,
      fmt::format(
          "batch size auto: there was not memory enough for {} rows, with which rank {} came to call #{} and rank "
          "{} to call #{}: they cannot go on together",
          batch, fewest - ranks.begin(), fewest->calls, most - ranks.begin(), most->calls),
      "a number of rows in its place, or a lower --memory_fraction");
}

/// How far the tries that fitted promise to reach, at most fourfold.
int64_t promised(const std::vector<BatchTry>& fitted, int64_t limit) {
  const BatchTry &first = fitted.front(), &last = fitted.back();
  if (fitted.size() < 2) return 2 * last.rows;
  const double a_row = static_cast<double>(last.bytes - first.bytes) / static_cast<double>(last.rows - first.rows);
  const double most = 3.0 * static_cast<double>(last.rows);
  const double more = a_row > 0 ? static_cast<double>(limit - last.bytes) / a_row : most;
  return last.rows + static_cast<int64_t>(std::min(more, most));
}

}  // namespace

BatchChoice search_batch_size(const BatchLimits& limits,
                              const std::function<std::optional<int64_t>(int64_t batch)>& attempt) {
  BatchChoice choice;
  std::vector<BatchTry> fitted;
  int64_t too_large = limits.largest + 1;  // the least that is known not to do
  const auto try_one = [&](int64_t batch) {
    const auto bytes = attempt(batch);
    const BatchTry one{.rows = batch, .bytes = bytes.value_or(0), .fits = bytes && *bytes <= limits.limit_bytes};
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
        "--memory_fraction, and --memory_limit where it is given");
  }
  while (fitted.back().rows + 1 < too_large) {
    const int64_t here = fitted.back().rows;
    const bool failed = too_large <= limits.largest;
    if (failed && too_large - here <= std::max<int64_t>(1, here / 16)) break;
    int64_t next = std::min(promised(fitted, limits.limit_bytes), too_large - 1);
    if (failed) next = std::clamp(next, here + 1, here + (too_large - here) / 2);
    if (next <= here) break;
    if (try_one(next) && next - here <= here / 16) break;  // what is left is less than that
  }
  choice.batch = fitted.back().rows;
  return choice;
}

std::optional<Features> longest_row(const Dataset& rows, const std::function<Features(const Sample&)>& features_of) {
  auto longest = longest_rows(rows, features_of, 1);
  return longest.empty() ? std::nullopt : std::optional(std::move(longest.front()));
}

int64_t agree_limit(Job& job, double fraction) {
  return std::ranges::min(of_all(job.control(), limit_of(job, fraction), "memory of the ranks"));
}

int64_t agree_batch_size(Job& job, double fraction, int64_t largest, const EventBus& events,
                         const std::function<int64_t(int64_t batch)>& work) {
  Communicator& control = job.control();
  const int64_t limit = agree_limit(job, fraction);
  for (const auto& gpu : job.gpus()) limit_gpu(gpu, limit);
  const BatchChoice choice =
      search_batch_size({.limit_bytes = limit, .largest = largest}, [&](int64_t batch) -> std::optional<int64_t> {
        Tried mine;
        try {
          begin_peak(job);
          const int64_t reserved = work(batch);
          mine.peak = peak_of(job) + reserved;
        } catch (const std::exception& error) {
          if (describe_failure(error).code != ExitCode::kMemory) throw;
          mine.peak = -1;
        }
        mine.calls = static_cast<int64_t>(job.data().ring().entered());
        const auto ranks = of_all(control, mine, "peak of a batch size");
        require_in_step(ranks, batch);
        const auto [least, most] = std::ranges::minmax(ranks, {}, &Tried::peak);
        return least.peak < 0 ? std::nullopt : std::optional(most.peak);
      });
  if (job.reports()) {
    events.emit(
        BatchSized{.tries = choice.tries, .rows = choice.batch, .limit_bytes = limit, .memory_fraction = fraction});
  }
  return choice.batch;
}

bool tries_may_part(const Job& job, const Plan& plan) {
  return !job.on_cpu() && job.world.size > 1 && (plan.options.training || plan.gathers());
}

int64_t foresee_batch_size(Job& job, double fraction, int64_t largest, const EventBus& events,
                           const std::function<int64_t(int64_t batch)>& needs) {
  const int64_t limit = agree_limit(job, fraction);
  BatchChoice choice;
  together(job.control(), "foreseeing a batch size", [&] {
    if (!job.reports()) return;
    choice = search_batch_size({.limit_bytes = limit, .largest = largest}, [&](int64_t batch) {
      return std::optional(static_cast<int64_t>(kForecastMargin * static_cast<double>(needs(batch))));
    });
  });
  if (job.reports()) {
    events.emit(
        BatchSized{.tries = choice.tries, .rows = choice.batch, .limit_bytes = limit, .memory_fraction = fraction});
  }
  return std::stoll(from_rank_0(job.control(), std::to_string(choice.batch), "batch size"));
}

int64_t agree_batch_of(Session& session, const RowTries& tries, const EventBus& events,
                       const std::function<int64_t(int64_t batch)>& run) {
  Job& job = session.job();
  if (!tries_may_part(job, session.plan())) {
    return agree_batch_size(job, tries.memory_fraction, tries.largest, events, run);
  }
  RehearsalOptions devices = devices_for_rehearsal(job, session.options().placement);
  devices.work = tries.work;
  return foresee_batch_size(job, tries.memory_fraction, tries.largest, events, [&](int64_t batch) {
    const RowsOfStep rows{std::vector<Features>(static_cast<size_t>(batch), tries.row)};
    return rehearse(session.model(), session.plan(), rows, devices).peak();
  });
}

}  // namespace lockstep
