// Named slots -> tensors: what travels between blocks. A slot may be rewritten; copies share tensors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

class Flow {
 public:
  using Entry = std::pair<std::string, Tensor>;

  Flow();
  Flow(std::initializer_list<Entry> entries);
  ~Flow();
  Flow(const Flow&);
  Flow(Flow&&) noexcept;
  Flow& operator=(const Flow&);
  Flow& operator=(Flow&&) noexcept;

  bool has(std::string_view slot) const;
  const Tensor& operator[](std::string_view slot) const;  // throws InternalError naming the slots that are there
  const Tensor* find(std::string_view slot) const;        // nullptr when absent
  void set(std::string_view slot, Tensor value);
  void erase(std::string_view slot);
  void put(Flow&& other);                               // overwrites slots of the same name
  Flow pick(std::span<const std::string> slots) const;  // those that are present
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;  // a handful: a scan beats a map
};

}  // namespace lockstep
