// In which order a tower with window attention takes its patches, and who may look at whom.
//
// A medium is a grid of t frames of h x w patches. Patches come in blocks of merge x merge, which become one token;
// each window holds up to window x window tokens of one frame.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// Frames, rows and columns, in patches.
using Grid = std::array<int64_t, 3>;
/// "grid_thw" [N,3] i64, of the host.
std::vector<Grid> grids_of(const Tensor& grid_N3);

/// Ends are counted in patches, each behind the last patch of a stretch.
struct WindowOrder {
  std::vector<int64_t> tokens;       // tokens[i]: which token of the given order stands at place i
  std::vector<int64_t> window_ends;  // empty windows are left out
  std::vector<int64_t> frame_ends;
};
/// `window`: its edge in tokens. Source: transformers 5.23 vision_utils.py get_vision_window_index.
WindowOrder window_order(const std::vector<Grid>& grids, int64_t merge, int64_t window);

/// Reads grid_thw [N,3]; writes patch_order [P] and token_order [M] (from the given order to windows and back),
/// window_ends, frame_ends (on the host) and vision_cos, vision_sin [1,P,H] in the order of the windows. Taps
/// "window_index", "cu_window_seqlens".
class WindowLayout final : public Block {
 public:
  /// `rope`: two sections, of the row and of the column.
  WindowLayout(std::string name, int64_t merge, int64_t window, RopeConfig rope);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  int64_t merge_, window_;
  RopeConfig rope_;
};

}  // namespace lockstep
