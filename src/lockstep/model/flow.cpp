#include "lockstep/model/flow.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

Flow::Flow() = default;
Flow::Flow(std::initializer_list<Entry> entries) : entries_(entries) {}
Flow::~Flow() = default;
Flow::Flow(const Flow&) = default;
Flow::Flow(Flow&&) noexcept = default;
Flow& Flow::operator=(const Flow&) = default;
Flow& Flow::operator=(Flow&&) noexcept = default;

const Tensor* Flow::find(std::string_view slot) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == slot; });
  return it == entries_.end() ? nullptr : &it->second;
}

bool Flow::has(std::string_view slot) const { return find(slot) != nullptr; }

const Tensor& Flow::operator[](std::string_view slot) const {
  if (const Tensor* found = find(slot)) return *found;
  std::string present;
  for (const auto& [name, tensor] : entries_) present += " " + name;
  throw InternalError(fmt::format("slot \"{}\" is not in the flow (present:{})", slot, present),
                      std::source_location::current());
}

void Flow::set(std::string_view slot, Tensor value) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == slot; });
  if (it == entries_.end()) {
    entries_.emplace_back(std::string(slot), std::move(value));
  } else {
    it->second = std::move(value);
  }
}

void Flow::erase(std::string_view slot) {
  std::erase_if(entries_, [&](const Entry& e) { return e.first == slot; });
}

void Flow::put(Flow&& other) {
  for (auto& [slot, value] : other.entries_) set(slot, std::move(value));
  other.entries_.clear();
}

Flow Flow::pick(std::span<const std::string> slots) const {
  Flow picked;
  for (const auto& slot : slots) {
    if (const Tensor* found = find(slot)) picked.entries_.emplace_back(slot, *found);
  }
  return picked;
}

}  // namespace lockstep
