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
  int64_t positions = 0;                   // that they are stretched to; 0: they are not
  bool grows = false;  // "dynamic": a row beyond max_positions would turn by other frequencies from its first token on
};

struct TextConfig {
  int64_t vocab = 0, hidden = 0, mlp = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, max_positions = 0;
  double norm_eps = 1e-6;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, tied = false;
  std::string activation = "silu";
  bool qk_norm = false;  // each head's queries and keys are normed before they turn, by one [head_dim] weight each
  std::vector<int64_t> windows;  // by layer, empty: none has any; see window()
  RopeConfig rope;

  /// How many tokens a token of `layer` looks back at, itself the first of them; 0: all.
  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows.at(static_cast<size_t>(layer)); }
};

}  // namespace lockstep
