#include "lockstep/comm/communicator.h"

#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr size_t kCallsInErrors = 5;

// How long a rank with a broken call waits for the roll call to say why.
constexpr auto kDiagnosisPatience = std::chrono::seconds(8);

CallSignature sign(Op op, const Tensor& tensor, ReduceOp reduce = ReduceOp::kNone) {
  const auto shape = tensor.sizes();
  CallSignature signature = CallSignature::of(op, dtype_name(dtype_of(tensor)), {shape.data(), shape.size()});
  signature.reduce = reduce;
  return signature;
}

int64_t bytes_of(const Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

/// Without the stack that LibTorch adds to its errors.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string late_text(std::string_view what, double seconds, const CommTimeout& late) {
  return fmt::format("{} after {}{}", what, format_duration(seconds), late.detail.empty() ? "" : ": " + late.detail);
}

}  // namespace

CollectiveError::CollectiveError(std::string message, std::string hint)
    : Error(ExitCode::kCommunication, std::move(message), std::move(hint)) {}

JobEnded::JobEnded(const Ending& ending)
    : CollectiveError(static_cast<ExitCode>(ending.exit_code), std::string(ending.message.view()),
                      std::string(ending.hint.view())) {}

Pending::~Pending() {
  if (work_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {
    comm_->give_up(*this);
    return;
  }
  try {
    wait();
  } catch (...) {  // a destructor must not throw; the communicator is dead and says so at the next call
  }
}

Pending::Pending(Pending&& other) noexcept
    : comm_(other.comm_),
      work_(std::move(other.work_)),
      seq_(other.seq_),
      op_(other.op_),
      line_(other.line_),
      cost_(other.cost_) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(work_, other.work_);
  std::swap(seq_, other.seq_);
  std::swap(op_, other.op_);
  std::swap(line_, other.line_);
  std::swap(cost_, other.cost_);
  return *this;
}

void Pending::wait() {
  if (work_ != nullptr) comm_->finish(*this);
}

Communicator::Communicator(World world, std::unique_ptr<Backend> backend, CommOptions options)
    : world_(std::move(world)),
      backend_(std::move(backend)),
      options_(std::move(options)),
      recorder_(options_.recorder != nullptr ? options_.recorder : std::make_shared<Recorder>()),
      group_(recorder_->add_group(options_.group)) {}

Communicator::~Communicator() = default;

// The only door to the network: what is not in the ring did not happen.
Pending Communicator::guarded(const CallSignature& signature, int64_t bytes, const Label& label,
                              const std::function<std::unique_ptr<Work>()>& launch) {
  const uint64_t seq = recorder_->enter(group_, signature, label.text, label.site);
  if (dead_) fail(seq, "not started: an earlier call on this communicator failed");
  Pending pending;
  const auto begun = Clock::now();
  if (recorder_->strict()) {
    recorder_->wait_begins(group_, seq, Clock::now());
    recorder_->await_clearance(group_, seq, options_.patience);
    recorder_->wait_ends(group_, {});
    pending.cost_.times.late = Clock::now() - begun;
  }
  if (recorder_->has_ending()) fail(seq, "not started: the job has been ended");
  ++counters_.calls;
  pending.comm_ = this;
  pending.seq_ = seq;
  pending.op_ = signature.op;
  try {
    pending.work_ = launch();
  } catch (const CommTimeout& late) {
    fail(seq, late_text("not launched", std::chrono::duration<double>(options_.patience).count(), late));
  } catch (const std::exception& e) {
    fail(seq, std::string("could not be launched: ") + first_line(e.what()));
  }
  recorder_->set_state(group_, seq, CallState::kLaunched);
  pending.line_ = figures_.line_of(signature.op, label.text);
  pending.cost_.bytes = bytes;
  pending.cost_.launched(Clock::now() - begun + std::exchange(staging_, {}));
  return pending;
}

void Communicator::finish(Pending& pending) {
  const auto work = std::exchange(pending.work_, nullptr);
  if (dead_) fail(pending.seq_, "abandoned: this communicator failed or was aborted");
  const auto start = Clock::now();
  recorder_->wait_begins(group_, pending.seq_, start);
  try {
    work->finish(options_.patience);
  } catch (const CommTimeout& late) {
    fail(pending.seq_, late_text("not finished", seconds_since(start), late));
  } catch (const std::exception& e) {
    fail(pending.seq_, std::string("broke: ") + first_line(e.what()));
  }
  if (work->queued()) {
    work->follow(news_of(pending.seq_));
  } else {
    recorder_->set_state(group_, pending.seq_, CallState::kDone);
  }
  const auto waited = Clock::now() - start;
  recorder_->wait_ends(group_, waited);
  pending.cost_.ended(waited, work->times());
  figures_.add(pending.line_, pending.cost_);
  const double seconds = std::chrono::duration<double>(waited).count();
  if (pending.op_ == Op::kAllGather) {
    counters_.gather_wait_seconds += seconds;
  } else if (pending.op_ == Op::kReduceScatter) {
    counters_.reduce_wait_seconds += seconds;
  } else {
    counters_.other_wait_seconds += seconds;
  }
}

/// Of a call that the device may still stand in when this thread does not any more.
QueuedNews Communicator::news_of(uint64_t seq) const {
  return {.passed =
              [recorder = recorder_, group = group_, seq] {
                recorder->set_state(group, seq, CallState::kDone);
                recorder->device_passed(group, seq);
              },
          .waits = [recorder = recorder_, group = group_,
                    seq](Clock::time_point since) { recorder->device_waits(group, seq, since); }};
}

void Communicator::give_up(Pending& pending) {
  abort();
  recorder_->set_state(group_, pending.seq_, CallState::kFailed);
  pending.work_.reset();
}

/// What this rank knows is seldom the cause, but where its own GPU failed or has no room: where an agent watches, it says what the roll call found.
void Communicator::fail(uint64_t seq, const std::string& why) {
  dead_ = true;
  recorder_->set_state(group_, seq, CallState::kFailed);
  std::string call = fmt::format("call #{}", seq), before;
  for (const auto& record : ring().last(kCallsInErrors)) {
    if (record.seq == seq) {
      call = fmt::format("{} (#{})", record.call(), seq);
    } else {
      before += "\n    " + record.describe();
    }
  }
  const Failure own = describe_failure(std::runtime_error(why));
  const bool is_own = own.code == ExitCode::kMemory || why.find("CUDA error: ") != std::string::npos;
  CollectiveError error(
      fmt::format("rank {} of {} ({}): {} {}{}", rank(), size(), backend_->name(), call, why,
                  before.empty() ? "" : "; calls before it:" + before),
      is_own ? own.hint
             : "another rank has left, is stuck, or made another call: look for the first error among the ranks");
  if (recorder_->watched()) {
    if (!recorder_->has_ending()) recorder_->say_last_words(describe_failure(error), /*secondary=*/!is_own);
    if (const auto ending = recorder_->await_ending(kDiagnosisPatience)) throw JobEnded(*ending);
  }
  throw error;
}

Pending Communicator::all_gather(const Tensor& full, const Tensor& shard, const Label& label) {
  check(full.numel() == shard.numel() * size() && full.scalar_type() == shard.scalar_type(),
        fmt::format("all_gather \"{}\": {} from {} x {}", label.text, spec_of(full, "").describe(), size(),
                    spec_of(shard, "").describe()));
  counters_.gather_bytes += bytes_of(full);
  return guarded(sign(Op::kAllGather, shard), bytes_of(full), label, [&] { return backend_->all_gather(full, shard); });
}

Pending Communicator::reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate, const Label& label) {
  check(staged.numel() == sum.numel() * size() && dtype_of(sum) == Dtype::kF32,
        fmt::format("reduce_scatter \"{}\": {} into {}", label.text, spec_of(staged, "").describe(),
                    spec_of(sum, "").describe()));
  counters_.reduce_bytes += bytes_of(staged);
  return guarded(sign(Op::kReduceScatter, staged, ReduceOp::kSum), bytes_of(staged), label,
                 [&] { return backend_->reduce_scatter(sum, staged, accumulate); });
}

Tensor Communicator::staging(int64_t numel, int scalar_type) {
  const uint64_t seq = ring().entered();
  if (dead_) fail(seq, "abandoned: this communicator failed or was aborted");
  const auto start = Clock::now();
  try {
    Tensor staged = backend_->staging(numel, scalar_type);
    staging_ += Clock::now() - start;
    return staged;
  } catch (const CommTimeout& late) {
    fail(seq, late_text("left no room to stage the next one", seconds_since(start), late));
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& e) {
    fail(seq, std::string("broke: ") + first_line(e.what()));
  }
}
int64_t Communicator::max_staging_bytes() const { return backend_->max_staging_bytes(); }

void Communicator::all_reduce_sum(const Tensor& value, const Label& label) {
  counters_.other_bytes += bytes_of(value);
  guarded(sign(Op::kAllReduce, value, ReduceOp::kSum), bytes_of(value), label, [&] {
    return backend_->all_reduce(value, false);
  }).wait();
}

void Communicator::all_reduce_max(const Tensor& value, const Label& label) {
  counters_.other_bytes += bytes_of(value);
  guarded(sign(Op::kAllReduce, value, ReduceOp::kMax), bytes_of(value), label, [&] {
    return backend_->all_reduce(value, true);
  }).wait();
}

void Communicator::broadcast(const Tensor& value, int root, const Label& label) {
  counters_.other_bytes += bytes_of(value);
  CallSignature signature = sign(Op::kBroadcast, value);
  signature.root = root;
  guarded(signature, bytes_of(value), label, [&] { return backend_->broadcast(value, root); }).wait();
}

void Communicator::barrier(const Label& label) {
  const Tensor token = zeros({1}, Dtype::kI64);
  guarded({.op = Op::kBarrier}, 0, label, [&] { return backend_->all_reduce(token, false); }).wait();
}

std::vector<std::string> Communicator::all_gather_bytes(std::string_view mine, const Label& label) {
  const Tensor my_length = full({1}, static_cast<double>(mine.size()), Dtype::kI64);
  const Tensor lengths = zeros({size()}, Dtype::kI64);
  guarded(sign(Op::kAllGatherBytes, my_length), bytes_of(lengths), label, [&] {
    return backend_->all_gather(lengths, my_length);
  }).wait();
  const int64_t longest = lengths.max().item<int64_t>();
  const Tensor padded = zeros({longest}, Dtype::kU8);
  if (!mine.empty()) std::memcpy(padded.data_ptr(), mine.data(), mine.size());
  const Tensor all = zeros({longest * size()}, Dtype::kU8);
  if (longest > 0) {
    counters_.other_bytes += bytes_of(all);
    guarded(sign(Op::kAllGatherBytes, padded), bytes_of(all), label, [&] {
      return backend_->all_gather(all, padded);
    }).wait();
  }
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r) {
    const auto* begin = static_cast<const char*>(all.data_ptr()) + r * longest;
    texts.emplace_back(begin, static_cast<size_t>(lengths.narrow(0, r, 1).item<int64_t>()));
  }
  return texts;
}

std::string Communicator::backend_name() const { return backend_->name(); }

void Communicator::abort() {
  dead_ = true;
  backend_->abort();
}

}  // namespace lockstep
