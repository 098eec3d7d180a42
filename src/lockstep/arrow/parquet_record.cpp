#include "lockstep/arrow/parquet_record.h"

#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>
#include <parquet/types.h>

namespace lockstep::arrow_rows {
namespace {

constexpr int kDeepest = 64;

bool is_kind(const parquet::schema::Node& node, bool map) {
  const auto& type = node.logical_type();
  const auto old = node.converted_type();
  if (map) {
    return (type != nullptr && type->is_map()) || old == parquet::ConvertedType::MAP ||
           old == parquet::ConvertedType::MAP_KEY_VALUE;
  }
  return (type != nullptr && type->is_list()) || old == parquet::ConvertedType::LIST;
}

}  // namespace

RecordShape::RecordShape(const parquet::schema::GroupNode& root) {
  size_t leaves = 0;
  for (int i = 0; i < root.field_count(); ++i) fields_.push_back(field_of(*root.field(i), 0, 0, leaves, 0));
}

RecordShape::Field RecordShape::field_of(const parquet::schema::Node& node, int16_t definition, int16_t repetition,
                                         size_t& leaves, int depth) {
  if (depth > kDeepest) throw std::runtime_error("columns nested more than 64 deep");
  Field field;
  field.name = node.name();
  field.optional = node.is_optional();
  field.repeated = node.is_repeated();
  field.definition = static_cast<int16_t>(definition + (node.is_required() ? 0 : 1));
  field.repetition = static_cast<int16_t>(repetition + (node.is_repeated() ? 1 : 0));
  field.first_leaf = leaves;
  if (node.is_primitive()) {
    ++leaves;
    field.num_leaves = 1;
    return field;
  }
  const auto& group = static_cast<const parquet::schema::GroupNode&>(node);
  field.kind = Kind::kStruct;
  for (int i = 0; i < group.field_count(); ++i)
    field.children.push_back(field_of(*group.field(i), field.definition, field.repetition, leaves, depth + 1));
  field.num_leaves = leaves - field.first_leaf;
  const bool wraps = field.children.size() == 1 && field.children[0].repeated && !field.repeated;
  if (wraps && is_kind(node, /*map=*/true) && field.children[0].children.size() == 2) field.kind = Kind::kMap;
  if (wraps && is_kind(node, /*map=*/false)) field.kind = Kind::kList;
  return field;
}

RecordShape::Slices RecordShape::of_child(const Field& field, const Field& child, const Slices& slices) {
  const auto begin = slices.begin() + static_cast<std::ptrdiff_t>(child.first_leaf - field.first_leaf);
  return {begin, begin + static_cast<std::ptrdiff_t>(child.num_leaves)};
}

/// The elements of a repeated field: a new one begins where a value repeats at this field.
std::vector<RecordShape::Slices> RecordShape::split(const Field& field, const Slices& slices) {
  std::vector<Slices> elements;
  for (size_t leaf = 0; leaf < slices.size(); ++leaf) {
    size_t count = 0;
    const Triple* begin = slices[leaf].begin;
    for (const Triple* at = begin; at != slices[leaf].end;) {
      const Triple* end = at + 1;
      while (end != slices[leaf].end && end->repetition > field.repetition) ++end;
      if (leaf == 0) elements.emplace_back(slices.size());
      if (count >= elements.size()) throw std::runtime_error("columns of one list have different lengths");
      elements[count++][leaf] = {at, end};
      at = end;
    }
    if (count != elements.size()) throw std::runtime_error("columns of one list have different lengths");
  }
  return elements;
}

Json RecordShape::build(const Field& field, const Slices& slices) {
  if (slices.empty()) return field.repeated ? Json::array() : Json::object();
  for (const auto& slice : slices) {
    if (slice.begin == slice.end) throw std::runtime_error("a column has no value for the row");
  }
  const bool there = slices[0].begin->definition >= field.definition;
  if (!field.repeated) return there ? build_one(field, slices) : Json();
  Json list = Json::array();
  if (!there) return list;
  for (const auto& element : split(field, slices)) list.push_back(build_one(field, element));
  return list;
}

Json RecordShape::build_one(const Field& field, const Slices& slices) {
  if (field.kind == Kind::kLeaf) return slices[0].begin->value ? *slices[0].begin->value : Json();
  if (field.kind == Kind::kStruct) {
    Names names;
    for (const auto& child : field.children) names.put(child.name, build(child, of_child(field, child, slices)));
    return names.take();
  }
  const Field& inner = field.children[0];
  Json all = build(inner, slices);
  if (field.kind == Kind::kList) {
    // Three levels: the repeated group holds the element; two: it is the element.
    const bool wrapped = inner.kind != Kind::kLeaf && inner.children.size() == 1 && inner.name != "array" &&
                         !inner.name.ends_with("_tuple");
    if (!wrapped) return all;
    Json list = Json::array();
    for (auto& one : all) list.push_back(one.empty() ? Json() : Json(std::move(one.front())));
    return list;
  }
  Names names;
  for (auto& pair : all) {
    const auto key = pair.find(inner.children[0].name), value = pair.find(inner.children[1].name);
    if (key == pair.end() || value == pair.end()) continue;
    names.set(key->is_string() ? key->get<std::string>() : key->dump(), std::move(*value));
  }
  return names.take();
}

Json RecordShape::assemble(const std::vector<Triples>& leaves) const {
  Names row;
  for (const auto& field : fields_) {
    Slices slices;
    for (size_t i = 0; i < field.num_leaves; ++i) {
      const Triples& all = leaves.at(field.first_leaf + i);
      slices.push_back({all.data(), all.data() + all.size()});
    }
    row.put(field.name, build(field, slices));
  }
  return row.take();
}

}  // namespace lockstep::arrow_rows
