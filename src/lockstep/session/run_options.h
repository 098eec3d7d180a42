// What every task needs to know to open a model and to run it on its ranks: plain data, whoever fills it in.
//
// Example:
//   const RunOptions options{.model = "my-model", .zero = {2}, .dtype = Dtype::kBF16};
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/launcher.h"  // Guard
#include "lockstep/comm/setup.h"     // Transport
#include "lockstep/guard/diagnosis.h"
#include "lockstep/model/block.h"
#include "lockstep/model/model_place.h"
#include "lockstep/plan/zero.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/quantise.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// Where blocks, weights and optimizer state stand, and how much memory they may take.
struct PlacementOptions {
  std::string device_map;  // auto | balanced | balanced_low_0 | sequential, JSON text, or a file; empty: one device
  std::string max_memory;  // what blocks may take of each device, of a map that is made: "0:10GiB,1:20GiB"
  int64_t memory_limit = DeviceMemory::kNoLimit;  // bytes that one rank may take of each device
  bool offload_optimizer = false, offload_params = false;
  bool offload_if_apart = false;     // where the device is the CPU a notice says that there is nothing to offload to
  int virtual_devices = 0;           // parts of the host's memory as devices; 0: none
  bool debug_sync = false;           // wait for the device after every block
  std::filesystem::path device_log;  // of every tensor that crosses between devices; empty: none

  bool limited() const { return memory_limit != DeviceMemory::kNoLimit; }
  /// Throws UserError(kUsage): what contradicts each other, and words with a slip in them.
  void check() const;
};

/// What is told of communication at the end of a job of several ranks: nothing, each kind of call, or each label.
enum class CommFigures { kOff, kKind, kFull };

/// Matrices as codes of few bits, which they become while they are loaded: ms-swift's words and defaults.
struct QuantOptions {
  int bits = 0;                   // 4 or 8; 0: as the folder has them
  std::string type = "nf4";       // of 4 bits: nf4 | fp4
  bool nested = true;             // of 4 bits: their scales are codes as well
  std::vector<std::string> skip;  // modules that are not; empty: towers and projectors, {"none"}: no module

  bool asked() const { return bits != 0; }
  std::string describe() const;  // "4 bits, nf4 with nested scales", "as the folder has them"
  QuantFormat format(Dtype compute) const;
  void check() const;  // throws UserError(kUsage)
};

/// A folder with an adapter, and what rows call it.
struct NamedAdapter {
  std::string name;  // empty: it is the only one
  std::filesystem::path dir;

  /// "DIR", or "NAME=DIR". Throws UserError(kUsage): a name that is none.
  static NamedAdapter from_flag(const std::string& text);
};

struct RunOptions {
  std::filesystem::path model;
  std::filesystem::path vision_tower = {};   // of a model whose tower stands elsewhere; empty: as its config.json says
  Joint joint = {};                          // of a model whose parts stand apart
  std::vector<std::string> new_tokens = {};  // special tokens that its tokenizer is given
  int64_t token_rows = 0;                    // of its tables, as its adapter's have; 0: nobody says
  std::vector<NamedAdapter> adapters = {};   // over it; several have names, one of which a row chooses
  bool merge_adapter = false;                // put into the weights while they are loaded: of a run that trains nothing
  bool rows_choose_adapter = false;          // what runs rows knows how; else several are refused
  ZeroStage zero;              // zero3: alone it costs nothing, among several ranks it needs the least memory
  bool shared_weights = true;  // zero3: once for all ranks of a host, where they can be
  std::optional<Dtype> dtype;  // of the computation; nullopt: what config.json says
  QuantOptions quant;
  std::set<Component> without;              // components that are not built
  std::vector<std::string> variables = {};  // that are set in the environment and speak of media: MAX_NUM, …
  bool use_chat_template = true;            // false: rows are texts, as pre-training has them
  bool audio_output = true;  // ENABLE_AUDIO_OUTPUT: what speaks must be in the files where config.json says so
  bool verify = true;        // weights are compared with the hashes that a checkpoint of lockstep has of them
  PlacementOptions placement;

  std::string device = "auto";  // auto | cpu | cuda
  int nproc = 0;                // local ranks; 0: NPROC_PER_NODE, else one a GPU, else one
  Transport transport = Transport::kAuto;
  JudgeOptions judge;
  Guard guard = Guard::kDefault;
  int max_restarts = 0;
  CommFigures comm_figures = CommFigures::kKind;
  bool deterministic = false;  // the same bits from the same work on GPUs, at some speed; the CPU gives them anyway
  bool force = false;          // begin even where memory or disk are predicted not to suffice
  std::set<std::string> unsaid = {};  // flags that nobody gave: what another stack does where nothing is said

  ModelPlace place() const {
    ModelPlace out{model, vision_tower, joint, new_tokens};
    out.token_rows = token_rows;
    return out;
  }
  void require_one_adapter() const;  // at most; throws UserError(kUsage)
  /// For one that waits for data itself: longer than the roll call, which speaks first.
  int64_t data_patience_s() const;
};

}  // namespace lockstep
