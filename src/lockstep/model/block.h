// A Block: the unit of sharding, placement, recompute, memory accounting and error messages. It holds no tensors.
//
// It declares its parameters, the slots it reads and writes, and a pure forward. Autograd lives inside forward; between
// blocks the Executor is the chain rule.
//
// Example:
//   class Projector final : public Block {
//     Flow forward(const Params& p, const Flow& in, const Context&) const override;
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/modality.h"
#include "lockstep/model/flow.h"
#include "lockstep/model/param.h"

namespace lockstep {

class KvCache;

/// What a person freezes or trains as one. ms-swift's vit is both towers, its aligner both projectors, its generator the
/// talker.
enum class Component : uint8_t { kLlm, kVision, kProjector, kAudio, kAudioProjector, kTalker };
std::string_view component_name(Component component);  // "llm", "vision", "projector", "audio", "audio_projector", …

enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

/// What forward may know beyond its inputs. One a micro-batch.
struct Context {
  bool training = false;            // labels are there, the head writes "loss"
  double loss_weight = 1.0;         // the summed loss is multiplied by it: loss scale / tokens of the whole step
  double speech_loss_weight = 1.0;  // the same of a talker's: loss scale * its share / codes of the whole step
  int64_t loss_chunk = 512;         // rows of logits that exist at once
  LogitsWanted logits = LogitsWanted::kNone;
  KvCache* cache = nullptr;         // generation only: keys and values of earlier tokens
  KvCache* speech_cache = nullptr;  // the same of a talker's codes
  int64_t slot = -1;                // of the cache: the row whose prompt this is; -1: one token for every slot
  std::function<void(const std::string& name, const Tensor& value)>
      tap;  // sees named intermediates; empty: nobody looks
};

/// The gathered parameters of one block, in the order of Block::params().
class Params {
 public:
  Params(std::span<const ParamSpec> specs, std::span<const Tensor> tensors) : specs_(specs), tensors_(tensors) {}
  const Tensor& operator[](std::string_view local) const;  // throws InternalError naming what there is
  std::span<const Tensor> all() const { return tensors_; }

 private:
  std::span<const ParamSpec> specs_;
  std::span<const Tensor> tensors_;
};

class Block {
 public:
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Pure: the same inputs give the same outputs, on every rank and when recomputed. Absent optional slots are absent
  /// in `in`.
  virtual Flow forward(const Params& params, const Flow& in, const Context& context) const = 0;

  const std::string& name() const { return name_; }
  Component component() const { return component_; }
  /// It runs where a batch holds one of these; with text: always, as every row has some.
  Modalities runs_on() const { return runs_on_; }
  bool always_runs() const { return runs_on_.has(Modality::kText); }
  bool may_recompute() const { return may_recompute_; }
  const std::vector<ParamSpec>& params() const { return params_; }
  const std::vector<std::string>& reads() const { return reads_; }
  const std::vector<std::string>& writes() const { return writes_; }

 protected:
  Block(std::string name, Component component, Modalities runs_on)
      : name_(std::move(name)), component_(component), runs_on_(runs_on) {}

  /// A parameter stored under `name() + "." + local`.
  void param(std::string local, Shape shape);
  /// A parameter made of checkpoint tensors laid behind one another along dim 0.
  void fused(std::string local, std::vector<ParamSource> parts);
  /// A parameter under another key; `tied`: owned by the block that declares it first.
  void param_at(std::string local, std::string key, Shape shape, bool tied = false);
  void reads(std::vector<std::string> slots) { reads_ = std::move(slots); }
  void writes(std::vector<std::string> slots) { writes_ = std::move(slots); }
  void never_recompute() { may_recompute_ = false; }

 private:
  std::string name_;
  Component component_;
  Modalities runs_on_;
  bool may_recompute_ = true;
  std::vector<ParamSpec> params_;
  std::vector<std::string> reads_, writes_;
};

}  // namespace lockstep
