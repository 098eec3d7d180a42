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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/modality.h"
#include "lockstep/model/flow.h"
#include "lockstep/model/param.h"

namespace lockstep {

class KvCache;
struct AdaptedBlock;

/// What a person freezes or trains as one. ms-swift's vit is both towers, its aligner both projectors, its generator the
/// talker.
enum class Component : uint8_t { kLlm, kVision, kProjector, kAudio, kAudioProjector, kTalker };
std::string_view component_name(Component component);  // "llm", "vision", "projector", "audio", "audio_projector", …

enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

/// Which of several adapters the rows of a batch are computed with.
struct AdapterRows {
  std::vector<size_t> adapters;  // that are taken at all
  std::vector<Tensor> rows;      // of each: [rows of the batch] bool; empty: there is one at most, and all take it
};

/// NEFTune: numbers that are added to embeddings in training, a row's own. Source: arXiv 2310.05914, section 2.
struct EmbeddingNoise {
  double alpha = 0;                   // over the root of a row's numbers; 0: none
  std::vector<uint64_t> keys = {};    // one a row of the batch
  std::vector<int64_t> lengths = {};  // tokens of each row
};

/// What forward may know beyond its inputs. One a micro-batch.
struct Context {
  bool training = false;            // labels are there, the head writes "loss"
  double loss_weight = 1.0;         // the summed loss is multiplied by it: loss scale / tokens of the whole step
  double speech_loss_weight = 1.0;  // the same of a talker's: loss scale * its share / codes of the whole step
  bool gradients_only = false;      // run again on the way back: nobody reads what comes out
  int64_t loss_chunk = 512;         // rows of logits that exist at once
  double label_smoothing = 0;       // the part of each label of a text that is spread over the vocabulary
  LogitsWanted logits = LogitsWanted::kNone;
  KvCache* cache = nullptr;                 // generation only: keys and values of earlier tokens
  KvCache* speech_cache = nullptr;          // the same of a talker's codes
  std::vector<uint64_t> dropout_keys;       // of adapters: one a row of the batch; empty: nothing is dropped
  std::vector<int64_t> row_ends;            // of rows behind one another, where something is dropped; empty: padded
  EmbeddingNoise noise;                     // of the token embedding
  std::optional<AdapterRows> adapter_rows;  // rows choose among several; nullopt: all take what there is
  int64_t slot = -1;                        // of the cache: the row whose prompt this is; -1: one token for every slot
  std::function<void(const std::string& name, const Tensor& value)>
      tap;  // sees named intermediates; empty: nobody looks
};

/// How a matrix is applied where it is not as its module's name says.
struct Applied {
  const Tensor* bias = nullptr;  // in place of the module's own
  bool summed = false;  // the block only adds to what comes of it: not computed where gradients alone are asked for
  Tensor (*flat)(const Tensor& w) = nullptr;  // a kernel [out, in...] as a matrix; nullptr: its numbers as they lie
};

/// The gathered parameters of one block, in the order of Block::params(), and what adapters add to its modules. A module is
/// named as its parameters are, without ".weight"; "" where those are "weight" and "bias".
class Params {
 public:
  Params(std::span<const ParamSpec> specs, std::span<const Tensor> tensors, const AdaptedBlock* adapted = nullptr,
         const Context* context = nullptr)
      : specs_(specs), tensors_(tensors), adapted_(adapted), context_(context) {}
  const Tensor& operator[](std::string_view local) const;  // throws InternalError naming what there is
  const Tensor* find(std::string_view local) const;

  /// x[.., in] through a matrix, with its bias where it has one -> [.., out].
  Tensor linear(std::string_view module, const Tensor& x, const Applied& applied = {}) const;
  /// sum + linear(); `sum` [.., out] may be written where it stands: nobody else may need it.
  Tensor add_linear(const Tensor& sum, std::string_view module, const Tensor& x) const;
  /// Rows of a table: ids [..] -> [.., D].
  Tensor rows(std::string_view module, const Tensor& ids) const;
  /// fn::chunked_cross_entropy over what linear() would give.
  std::pair<Tensor, Tensor> cross_entropy(std::string_view module, const Tensor& x_RD, const Tensor& targets_R,
                                          double weight, int64_t chunk, double smoothing) const;

 private:
  size_t index_of(std::string_view local) const;
  struct Use;
  std::vector<Use> uses_of(size_t param) const;

  std::span<const ParamSpec> specs_;
  std::span<const Tensor> tensors_;
  const AdaptedBlock* adapted_;
  const Context* context_;
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

  /// A parameter stored under `name() + "." + local`. One of two or more dimensions that is called "….weight" is a matrix.
  void param(std::string local, Shape shape);
  void lookup_table(std::string local, Shape shape);
  void lookup_table_at(std::string local, std::string key, Shape shape);
  /// A parameter made of checkpoint tensors laid behind one another along dim 0.
  void fused(std::string local, std::vector<ParamSource> parts);
  /// A parameter under another key.
  void param_at(std::string local, std::string key, Shape shape);
  /// One that is owned by the block that declares `key` first; files that have it twice call it `untied_key`.
  void tied(std::string local, std::string key, Shape shape, std::string untied_key);
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
