// Names as data: how another writer calls the tensors of a model, and which rows of its tensors are ours.
//
// Example: a tower whose file stacks q, k and v
//   Dialect{"published", {{"tower.layer.*.q_proj.*", "vit.layers.*.attn.qkv.*", stacked(0, 3, hidden)},
//                         {"tower.layer.*.k_proj.*", "vit.layers.*.attn.qkv.*", stacked(1, 3, hidden)}, …}}
//   stored_part(dialect, "tower.layer.7.k_proj.weight")   // vit.layers.7.attn.qkv.weight, rows [hidden, 2 hidden)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

/// Which rows (dimension 0) of a file's tensor are a tensor of ours. The file's rows stand in equal groups; of each
/// group, `own` rows behind the first `before` are ours, group after group.
struct StoredRows {
  int64_t group = 0, before = 0, own = 0;  // group 0: the whole tensor is ours

  bool whole() const { return group == 0; }
  bool operator==(const StoredRows&) const = default;
};

/// One of `count` tensors of `rows` rows each that lie behind one another.
StoredRows stacked(int64_t index, int64_t count, int64_t rows);

/// `*` is one part of a name (no dot in it); at the end of a pattern it is all that follows, dots included. `other` has
/// as many as `canonical`, in the same order.
struct NameRule {
  std::string canonical, other;
  StoredRows rows = {};
};

struct Dialect {
  std::string name;             // "transformers 5", "in memory"
  std::vector<NameRule> rules;  // the first that matches is applied; what none matches is called as here
  bool own_code = false;        // of a class that comes with the folder: its modules are called so in memory, too
};

/// A tensor of the model as a file has it.
struct StoredPart {
  std::string name;
  StoredRows rows;

  /// The shape of the file's tensor, of which a tensor of shape `ours` is this part.
  Shape whole_of(const Shape& ours) const;
};

StoredPart stored_part(const Dialect& dialect, const std::string& canonical);
/// What a dialect calls a module, by the rule for whatever is inside it that no narrower rule names.
std::string module_name(const Dialect& dialect, const std::string& canonical);

/// Elements [begin, end) of a tensor of shape `shape`, flattened, as pieces that are contiguous in the file's tensor:
/// visit(first element there, first element here, how many), in rising order.
void for_each_piece(const StoredRows& rows, const Shape& shape, int64_t begin, int64_t end,
                    const std::function<void(int64_t there, int64_t here, int64_t count)>& visit);

}  // namespace lockstep
