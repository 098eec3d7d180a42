// Flags that all verbs share which run a model: where it is, in which dtype and ZeRO stage, on which devices and ranks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/cli/quant_flags.h"
#include "lockstep/plan/zero.h"
#include "lockstep/session/run_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct RunFlags {
  QuantFlags quant;
  RunOptions given;  // what a flag says as it is
  std::string torch_dtype, deepspeed, transport = "auto", patience = "600", guard = "default", comm_figures = "kind";
  std::string memory_limit, device_log;
  double soft_patience = 3;
  std::vector<std::string> adapters, no_build, new_special_tokens;
  std::vector<std::string> variables;       // NAME=VALUE: flags of other stacks that are variables here
  std::vector<std::string> media_defaults;  // and what counts where the environment does not say it
  std::vector<std::string> offload;         // "optimizer", "params", "none"
  bool model_is_needed = true;              // doctor looks at a machine without one

  /// All of it. Throws UserError(kUsage).
  RunOptions options(const Env& env) const;
  /// The environment with these over it.
  Env with_variables(const Env& env) const;
  JudgeOptions judge() const;
  bool offloads(const std::string& what) const;

 private:
  PlacementOptions placement(const DeepSpeedChoice& choice) const;
};
void add_run_flags(CLI::App& app, RunFlags& flags);
/// Of a model whose tower, or projector too, stands elsewhere.
void add_joint_flags(CLI::App& app, std::filesystem::path& vision_tower, Joint& joint);
void add_new_token_flag(CLI::App& app, std::vector<std::string>& words);
/// --max_shard_size 5GB: where files of weights are cut.
void add_shard_size_flag(CLI::App& app, const std::string& group, int64_t& bytes);
/// The tokens of such words, of which one may be a file: NAME.txt, with white space between them. Throws UserError(kUsage).
std::vector<std::string> new_tokens_from(const std::vector<std::string>& words);

}  // namespace lockstep
