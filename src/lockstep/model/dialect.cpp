#include "lockstep/model/dialect.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What the stars of a pattern stand for; nullopt where the name is another.
std::optional<std::vector<std::string_view>> stars_of(std::string_view pattern, std::string_view name) {
  std::vector<std::string_view> stars;
  while (!pattern.empty()) {
    if (pattern.front() != '*') {
      if (name.empty() || name.front() != pattern.front()) return std::nullopt;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
      continue;
    }
    pattern.remove_prefix(1);
    const size_t size = pattern.empty() ? name.size() : std::min(name.find('.'), name.size());
    if (size == 0) return std::nullopt;
    stars.push_back(name.substr(0, size));
    name.remove_prefix(size);
  }
  if (!name.empty()) return std::nullopt;
  return stars;
}

std::string filled(const NameRule& rule, const std::vector<std::string_view>& stars) {
  std::string name;
  size_t used = 0;
  for (const char letter : rule.other) {
    if (letter != '*') {
      name += letter;
      continue;
    }
    check(used < stars.size(), fmt::format("rule {} -> {}: as many stars on both sides", rule.canonical, rule.other));
    name += stars[used++];
  }
  check(used == stars.size(), fmt::format("rule {} -> {}: as many stars on both sides", rule.canonical, rule.other));
  return name;
}

}  // namespace

StoredRows stacked(int64_t index, int64_t count, int64_t rows) {
  return {.group = count * rows, .before = index * rows, .own = rows};
}

Shape StoredPart::whole_of(const Shape& ours) const {
  if (rows.whole()) return ours;
  check(!ours.empty() && rows.own > 0 && ours[0] % rows.own == 0, name + ": whole groups of rows");
  Shape whole = ours;
  whole[0] = ours[0] / rows.own * rows.group;
  return whole;
}

StoredPart stored_part(const Dialect& dialect, const std::string& canonical) {
  for (const auto& rule : dialect.rules) {
    if (const auto stars = stars_of(rule.canonical, canonical)) return {filled(rule, *stars), rule.rows};
  }
  return {canonical, {}};
}

std::string module_name(const Dialect& dialect, const std::string& canonical) {
  constexpr std::string_view kInside = ".?";  // the name of no tensor
  std::string name = stored_part(dialect, canonical + std::string(kInside)).name;
  name.resize(name.size() - kInside.size());
  return name;
}

void for_each_piece(const StoredRows& rows, const Shape& shape, int64_t begin, int64_t end,
                    const std::function<void(int64_t there, int64_t here, int64_t count)>& visit) {
  if (rows.whole()) {
    if (begin < end) visit(begin, begin, end - begin);
    return;
  }
  const int64_t row = std::max<int64_t>(1, numel_of(shape) / std::max<int64_t>(1, shape.at(0)));
  const int64_t own = rows.own * row;
  for (int64_t here = begin; here < end;) {
    const int64_t inside = here % own;
    const int64_t count = std::min(own - inside, end - here);
    visit(here / own * rows.group * row + rows.before * row + inside, here, count);
    here += count;
  }
}

}  // namespace lockstep
