// Sizes of a decoder of the Llama kind: what its layers need to know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct RopeConfig {
  std::vector<float> inverse_frequencies;  // [head_dim / 2]
  double scaling = 1.0;                    // of the tables
  std::vector<int64_t> sections;           // where positions have several axes: how many frequencies take each in turn
};

struct TextConfig {
  int64_t vocab = 0, hidden = 0, mlp = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, max_positions = 0;
  double norm_eps = 1e-6;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, tied = false;
  std::string activation = "silu";
  RopeConfig rope;
};

}  // namespace lockstep
