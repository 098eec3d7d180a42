#include "lockstep/state/grad_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/state/sum_of_squares.h"
#include "lockstep/tensor/finite.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr size_t kInFlight = 2;                      // one being summed while the next is filled
constexpr int64_t kSegmentBytes = int64_t{4} << 20;  // of one rank's part: bounded staging whatever the unit's size

/// dst := src, converting. Plain bytes when they can be: a block has a dozen small gradients.
void copy_flat(const Tensor& dst, const Tensor& src) {
  if (dst.is_cpu() && src.is_cpu() && dst.scalar_type() == src.scalar_type()) {
    std::memcpy(dst.data_ptr(), src.data_ptr(), static_cast<size_t>(dst.nbytes()));
  } else if (dst.scalar_type() == at::kFloat && gpu::meet(dst, src)) {
    gpu::accumulate(dst, src, /*adds=*/false);
  } else {
    dst.copy_(src);
  }
}

void add_flat(const Tensor& dst, const Tensor& src) {
  gpu::meet(dst, src) ? gpu::accumulate(dst, src, /*adds=*/true) : void(dst.add_(src));
}

/// Gradients of a unit on their way into its flat sum, or onto it when `adds`. On a GPU small ones (of norms, of biases) go
/// together: for each by itself the launch costs more than the work.
class FlatSums {
 public:
  explicit FlatSums(bool adds) : adds_(adds) {}

  void put(const Tensor& dst, const Tensor& src) {
    constexpr int64_t kSmall = int64_t{1} << 16;  // elements
    if (src.numel() > kSmall || dst.scalar_type() != at::kFloat || !gpu::meet(dst, src)) {
      return adds_ ? add_flat(dst, src) : copy_flat(dst, src);
    }
    if (few_.size() == gpu::kFewSums || (!few_.empty() && few_[0].scalar_type() != src.scalar_type())) finish();
    sums_.push_back(dst);
    few_.push_back(src);
  }

  void finish() {
    if (!few_.empty()) gpu::accumulate(sums_, few_, adds_);
    sums_.clear();
    few_.clear();
  }

 private:
  bool adds_;
  std::vector<Tensor> sums_, few_;
};

}  // namespace

GradReducer::GradReducer(ParamStore& store, Communicator& comm) : store_(store), comm_(comm) {}

GradReducer::~GradReducer() = default;

void GradReducer::add(int unit, std::span<const Tensor> grads, size_t micro_batch) {
  const at::NoGradGuard no_grad;
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  const OnDevice scope(store_.devices().at(planned.device));
  const UsedFor use(MemoryUse::kGradients);
  const auto slices = slices_of(unit, grads);
  // Uses on several devices lie a pipeline apart: a sum for each micro-batch in between would be held for long.
  if (planned.uses > 1 && store_.unit(unit).views.size() == 1) {
    add_tied(unit, slices, micro_batch);
  } else {
    reduce(unit, slices, store_.plan().reduced(planned));
  }
}

std::vector<GradReducer::Slice> GradReducer::slices_of(int unit, std::span<const Tensor> grads) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  std::vector<Slice> slices;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const Tensor here = move_to(grads[i].contiguous(), store_.devices().at(planned.device));  // of a tied reader
    const Tensor flat = here.view({-1});
    look_at(unit, i, flat);
    const auto& sources = planned.params[i].spec.sources;
    if (std::ranges::all_of(sources, &ParamSource::learns)) {
      slices.push_back({planned.params[i].offset, flat});
      continue;
    }
    int64_t begin = 0;
    for (const auto& source : sources) {  // zeros of a part that does not learn
      const int64_t numel = numel_of(source.shape);
      if (source.learns) slices.push_back({planned.params[i].offset + begin, flat.narrow(0, begin, numel)});
      begin += numel;
    }
  }
  return slices;
}

void GradReducer::add_tied(int unit, const std::vector<Slice>& slices, size_t micro_batch) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  Local& local = local_[{micro_batch, unit}];
  if (!local.sum.defined()) {
    local.sum = store_.pool(planned.device).take_zeros(planned.padded, Dtype::kF32, MemoryUse::kGradients);
  }
  for (const auto& slice : slices) local.sum.narrow(0, slice.offset, slice.flat.numel()).add_(slice.flat);
  if (++local.seen < planned.uses) return;
  reduce(unit, {{0, local.sum}}, Dtype::kF32);
  drain(0);
  local_.erase({micro_batch, unit});
}

void GradReducer::fill_part(const Tensor& part, int64_t begin, const std::vector<Slice>& slices) {
  const Range wanted{begin, begin + part.numel()};
  const auto overlap = [&](const Slice& slice) {
    return intersect(wanted, {slice.offset, slice.offset + slice.flat.numel()});
  };
  int64_t done = begin;
  FlatSums sums(/*adds=*/false);
  const auto clear_until = [&](int64_t end) {  // alignment holes, padding, parameters without a gradient
    if (done < end) part.narrow(0, done - begin, end - done).zero_();
  };
  for (const auto& slice : slices) {  // in their order in the unit
    const Range both = overlap(slice);
    if (both.empty()) continue;
    clear_until(both.begin);
    done = both.end;
    sums.put(part.narrow(0, both.begin - begin, both.size()),
             slice.flat.narrow(0, both.begin - slice.offset, both.size()));
  }
  sums.finish();
  clear_until(wanted.end);
}

void GradReducer::reduce(int unit, const std::vector<Slice>& slices, Dtype staging_dtype) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  UnitState& state = store_.unit(unit);
  if (comm_.size() == 1) return reduce_alone(unit, slices);
  const int64_t world = comm_.size();
  const int64_t budget = std::min(kSegmentBytes * world, comm_.max_staging_bytes());
  const int64_t segment =
      std::max<int64_t>(Plan::kAlign, budget / (world * dtype_bytes(staging_dtype)) / Plan::kAlign * Plan::kAlign);
  for (int64_t begin = 0; begin < planned.shard; begin += segment) {
    const int64_t size = std::min(segment, planned.shard - begin);
    drain(kInFlight - 1);
    const UsedFor staging_memory(MemoryUse::kCommunication);
    const Tensor staged = comm_.staging(world * size, scalar_type_of(staging_dtype));
    for (int64_t r = 0; r < world && !staged.is_meta(); ++r) {  // of a rehearsal: nothing to fill
      fill_part(staged.narrow(0, r * size, size), r * planned.shard + begin, slices);
    }
    auto pending =
        comm_.reduce_scatter(state.grad.narrow(0, begin, size), staged, state.touched, planned.name + " grad");
    in_flight_.push_back({std::move(pending), staged});
  }
  state.touched = true;
}

void GradReducer::reduce_alone(int unit, const std::vector<Slice>& slices) {
  UnitState& state = store_.unit(unit);
  if (!state.touched) {
    fill_part(state.grad, 0, slices);
  } else {
    FlatSums sums(/*adds=*/true);
    for (const auto& slice : slices) sums.put(state.grad.narrow(0, slice.offset, slice.flat.numel()), slice.flat);
    sums.finish();
  }
  state.touched = true;
}

void GradReducer::finish_micro_batch(size_t micro_batch) {
  const at::NoGradGuard no_grad;
  for (auto at = local_.lower_bound({micro_batch, 0}); at != local_.end() && at->first.first == micro_batch;) {
    const int unit = at->first.second;
    const OnDevice scope(store_.devices().at(store_.plan().units[static_cast<size_t>(unit)].device));
    reduce(unit, {{0, at->second.sum}}, Dtype::kF32);
    drain(0);
    at = local_.erase(at);
  }
  drain(0);
}

/// After a pass that an exception has cut short too: tied units between their uses, and reductions whose memory is theirs until
/// they end.
void GradReducer::clear() {
  drain(0);
  local_.clear();
  local_sums_.clear();
  not_finite_.clear();
  for (int unit = 0; unit < store_.num_units(); ++unit) store_.unit(unit).touched = false;
}

/// On a GPU a sum is left to be asked for, so that the host does not wait.
void GradReducer::look_at(int unit, size_t param, const Tensor& flat) {
  if (flat.is_meta()) return;
  if (!flat.is_cpu()) {
    if (comm_.size() == 1) return;  // the sums over ranks are this rank's: they say it themselves
    local_sums_.push_back({unit, param, flat.sum(at::kFloat)});
  } else if (not_finite_.empty() && !all_finite(flat)) {
    not_finite_ = name_of(unit, param);
  }
}

std::string GradReducer::name_of(int unit, size_t param) const {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  return planned.name + "." + planned.params[param].spec.local;
}

std::string GradReducer::first_not_finite() const {
  for (const auto& one : local_sums_) {
    if (!std::isfinite(one.value.item<double>())) return name_of(one.unit, one.param);
  }
  for (int unit = 0; not_finite_.empty() && comm_.size() == 1 && unit < store_.num_units(); ++unit) {
    const UnitState& state = store_.unit(unit);
    if (!state.touched || state.grad.is_cpu()) continue;  // where none was made note of
    const auto& params = store_.plan().units[static_cast<size_t>(unit)].params;
    for (size_t p = 0; p < params.size(); ++p) {
      const Tensor grad = state.grad.narrow(0, params[p].offset, numel_of(params[p].spec.shape));
      if (!grad.isfinite().all().item<bool>()) return name_of(unit, p);
    }
  }
  return not_finite_;
}

Tensor GradReducer::local_sum_of_squares() const {
  std::map<std::string, Tensor> by_device;
  for (int unit = 0; unit < store_.num_units(); ++unit) {
    const UnitState& state = store_.unit(unit);
    if (!state.touched || state.grad.numel() == 0) continue;
    const Tensor squares = sum_of_squares(state.grad);
    const auto [sum, first] = by_device.emplace(state.grad.device().str(), squares);
    if (!first) sum->second.add_(squares);
  }
  if (by_device.empty()) return zeros({}, Dtype::kF64);
  Tensor sum = by_device.begin()->second;
  for (auto other = std::next(by_device.begin()); other != by_device.end(); ++other) {
    sum.add_(sent_to(other->second, sum.device()));
  }
  return sum;
}

void GradReducer::drain(size_t keep) {
  while (in_flight_.size() > keep) {
    in_flight_.front().pending.wait();
    in_flight_.pop_front();
  }
}

}  // namespace lockstep
