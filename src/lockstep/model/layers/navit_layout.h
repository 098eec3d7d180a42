// Where the patches of slices stand that have any number of rows and columns: in one line behind one another, on the table of
// learnt positions of a NaViT tower, and among the waves that a resampler adds to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/block.h"

namespace lockstep {

/// In patches.
struct PatchGrid {
  int64_t rows = 0, columns = 0;
};
/// "patch_grid" [N,2] i64, of the host.
std::vector<PatchGrid> patch_grids_of(const Tensor& grid_N2);

/// For each of `count` patches of an edge its place on a table with `side` of them, which spans the same edge. Where a
/// patch begins at the border of two places, float32 decides, in the arithmetic of torch.arange on a CPU with eight lanes: the
/// models were trained with it. Source: modeling_navit_siglip.py SiglipVisionEmbeddings.forward (transformers 5.23
/// Idefics2VisionEmbeddings).
std::vector<int64_t> table_places(int64_t count, int64_t side);

/// [count, width]: sines, then cosines, of each place. Source: MiniCPM-V 2.6 resampler.py
/// get_1d_sincos_pos_embed_from_grid_new, in float32.
Tensor place_waves(int64_t count, int64_t width);

/// Reads patch_grid [N,2]; writes patch_places [P] i64 (rows of the table of positions), slice_ends [N] i64 (on the host,
/// each behind the last patch of a slice), patch_rows and patch_columns [P] i64, and place_waves [rows or columns, the most,
/// width] f32.
class NavitLayout final : public Block {
 public:
  NavitLayout(std::string name, int64_t table_side, int64_t wave_width);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  int64_t side_, width_;
};

}  // namespace lockstep
