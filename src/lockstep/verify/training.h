// Recorded training, run again: what runs of whole models and of adapters share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/state/sharded_adamw.h"
#include "lockstep/verify/model.h"
#include "lockstep/verify/parts.h"

namespace lockstep {

class HfConfig;

struct Hyper {
  double lr = 0, clip = 0;
  int64_t warmup = 0, steps = 0, accumulation = 1;
  AdamWOptions adamw = {};
};
Hyper read_hyper(const HfConfig& json);

/// The inputs of a case or micro-batch with its pixels, which the reference stores once for each distinct image.
Named inputs_of(const Reference& reference, const Json& meta, const std::string& name);

struct Curves {
  std::vector<float> loss, norm, rate, micro;
};
/// Steps over the micro-batches "00", "01", … `token_mean`: weighted by their tokens, else alike.
Curves train(VerifyModel& model, const Reference& reference, const Json& meta, const Hyper& hyper, bool token_mean);
void compare_curves(const std::string& run, const Named& expected, const Curves& curves, VerifyReport& report);

/// A run of an adapter: its curves, and its tensors at the end beside those of `final_dir`.
void verify_adapter_run(const std::string& run, VerifyModel& model, const Reference& reference, const Json& meta,
                        const Hyper& hyper, const std::filesystem::path& final_dir, VerifyReport& report);

/// A run of a training folder that begins with lora_init/ and ends in lora_final/.
void verify_lora_run(const std::filesystem::path& folder, const std::string& run, const Reference& reference,
                     const Json& meta, VerifyReport& report);

}  // namespace lockstep
