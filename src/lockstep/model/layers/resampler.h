// A perceiver resampler: however many patches a slice has, a fixed number of learnt queries attend to them, and what they find
// are its tokens. MiniCPM-V's, and OmniLMM's, whose queries stand on a square and know where.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct ResamplerConfig {
  int64_t vision_hidden = 0, text_hidden = 0;
  int64_t queries = 64, heads = 0;
  int64_t query_edge = 0;  // of the square on which the queries stand; 0: they stand nowhere
  double norm_eps = 1e-6;
};

/// Reads vision [P,V], slice_ends [N], patch_rows, patch_columns [P] and place_waves [places, D/2], with places of queries
/// also query_waves [query_edge, D/2]; writes media [N,Q,D]. Taps "resampler".
class Resampler final : public Block {
 public:
  Resampler(std::string name, const ResamplerConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor norm(const Params& params, const std::string& local, const Tensor& x) const;
  Tensor attend(const Params& params, const Tensor& queries_QD, const Tensor& keys_PD, const Tensor& values_PD,
                const Tensor& ends_N) const;
  Tensor queries(const Params& params, const Flow& in) const;

  ResamplerConfig config_;
};

}  // namespace lockstep
