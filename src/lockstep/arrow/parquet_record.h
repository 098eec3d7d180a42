// One record of a Parquet file from the values of its columns: Dremel's levels made lists and objects again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <parquet/schema.h>

#include "lockstep/arrow/value_text.h"

namespace lockstep::arrow_rows {

/// A value of a column with its levels; none where `definition` is below the column's greatest, or null.
struct Triple {
  int16_t definition = 0, repetition = 0;
  std::unique_ptr<Json> value = nullptr;
};
using Triples = std::vector<Triple>;

/// How the columns of a schema lie in one another.
class RecordShape {
 public:
  RecordShape() = default;
  explicit RecordShape(const parquet::schema::GroupNode& root);

  /// By leaf: the values of one record. Throws std::exception where they do not fit one another.
  Json assemble(const std::vector<Triples>& leaves) const;

 private:
  enum class Kind { kLeaf, kStruct, kList, kMap };
  struct Field {
    std::string name;
    Kind kind = Kind::kLeaf;
    bool optional = false, repeated = false;
    int16_t definition = 0, repetition = 0;  // greatest levels at this field
    size_t first_leaf = 0, num_leaves = 0;
    std::vector<Field> children;
  };
  struct Slice {
    const Triple *begin, *end;
  };
  using Slices = std::vector<Slice>;  // by leaf of the field

  static Field field_of(const parquet::schema::Node& node, int16_t definition, int16_t repetition, size_t& leaves,
                        int depth);
  static Json build(const Field& field, const Slices& slices);
  static Json build_one(const Field& field, const Slices& slices);
  static std::vector<Slices> split(const Field& field, const Slices& slices);
  static Slices of_child(const Field& field, const Field& child, const Slices& slices);

  std::vector<Field> fields_;
};

}  // namespace lockstep::arrow_rows
