// A nested value: what a metric function, a metadata column or a gathered evaluation result may be (incident I1).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// none | bool | integer | number | string | tensor | list | tuple | dict. A cheap handle: tensors are shared, not
/// copied.
class Value {
 public:
  using List = std::vector<Value>;
  using Dict = std::vector<std::pair<std::string, Value>>;  // in insertion order
  struct Tuple {
    List items;
  };

  Value() = default;  // none
  Value(bool value);
  Value(int64_t value);
  Value(double value);
  Value(std::string value);
  Value(const char* value);
  Value(const Tensor& value);
  Value(List items);
  Value(Tuple items);
  Value(Dict entries);

  bool is_none() const;
  const Tensor* tensor() const;  // nullptr when it is something else; likewise below
  const List* list() const;
  const Tuple* tuple() const;
  const Dict* dict() const;
  const std::string* string() const;
  const int64_t* integer() const;
  const double* number() const;
  const bool* boolean() const;

  /// The structure without sizes that may differ over ranks: "(f32[*, 4], {\"id\": str}, [int...])". A list whose items
  /// are alike may differ in length.
  std::string structure() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, std::shared_ptr<const Tensor>,
               std::shared_ptr<const List>, std::shared_ptr<const Tuple>, std::shared_ptr<const Dict>>
      value_;
};

/// What two structures have in common when they agree: equal, but that an empty list "[...]" agrees with any list,
/// whose items it then takes. Nothing when they do not.
std::optional<std::string> merged_structure(std::string_view a, std::string_view b);

}  // namespace lockstep
