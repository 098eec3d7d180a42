#include "lockstep/verify/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

const char* word_of(VerifyVerdict verdict) {
  switch (verdict) {
    case VerifyVerdict::kHolds:
      return "ok";
    case VerifyVerdict::kFails:
      return "FAIL";
    case VerifyVerdict::kNotBuilt:
      return "not built";
    case VerifyVerdict::kNotCompared:
      return "not compared";
  }
  return "?";
}

/// The values at positions where the mask is 1, flat, in float64.
Tensor counted(const Tensor& value, const Tensor& mask) {
  const Tensor wide = to_dtype(value.detach(), Dtype::kF64);
  if (!mask.defined() || value.dim() < 2 || value.size(0) != mask.size(0) || value.size(1) != mask.size(1)) {
    return wide.reshape({-1});
  }
  return wide.reshape({mask.numel(), -1}).index_select(0, mask.reshape({-1}).nonzero().reshape({-1})).reshape({-1});
}

double number(const Tensor& scalar) { return scalar.item<double>(); }

}  // namespace

void VerifyReport::add(const std::string& name, const std::string& tensor, double difference, double tolerance,
                       VerifyVerdict verdict, const std::string& note) {
  rows_.push_back({folder_, name, tensor, difference, tolerance, verdict, note});
}

void VerifyReport::compare(const std::string& name, const std::string& tensor, const Tensor& expected,
                           const Tensor& found, const Tolerance& tolerance) {
  compare(name, tensor, expected, found, tolerance, Tensor());
}

void VerifyReport::compare(const std::string& name, const std::string& tensor, const Tensor& expected,
                           const Tensor& found, const Tolerance& tolerance, const Tensor& mask) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (shape_of(expected) != shape_of(found)) {
    add(name, tensor, kInfinity, tolerance.max, VerifyVerdict::kFails,
        fmt::format("expected {}, found {}", spec_of(expected, "").describe(), spec_of(found, "").describe()));
    return;
  }
  const Tensor a = counted(expected, mask), b = counted(found, mask);
  const Tensor apart = a.sub(b).abs();
  const double worst = a.numel() == 0 ? 0.0 : number(apart.max());
  const double mean = a.numel() == 0 ? 0.0 : number(apart.mean());
  if (tolerance.cosine > 0) {
    const double norms = std::sqrt(number(a.mul(a).sum()) * number(b.mul(b).sum()));
    const double cosine = norms > 0 ? number(a.mul(b).sum()) / norms : (worst == 0 ? 1.0 : 0.0);
    add(name, tensor, 1 - cosine, 1 - tolerance.cosine,
        cosine >= tolerance.cosine ? VerifyVerdict::kHolds : VerifyVerdict::kFails, "1 - cosine");
    return;
  }
  const bool near = worst <= tolerance.max && (tolerance.mean == 0 || mean <= tolerance.mean);  // false for NaN
  std::string note;
  if (tolerance.mean > 0) note = fmt::format("mean {:.2g}, at most {:.2g}", mean, tolerance.mean);
  add(name, tensor, std::isnan(worst) ? kInfinity : worst, tolerance.max,
      near ? VerifyVerdict::kHolds : VerifyVerdict::kFails, note);
}

void VerifyReport::measured(const std::string& name, const std::string& tensor, double difference, double tolerance,
                            const std::string& note) {
  add(name, tensor, difference, tolerance, difference <= tolerance ? VerifyVerdict::kHolds : VerifyVerdict::kFails,
      note);
}

void VerifyReport::fails(const std::string& name, const std::string& tensor, const std::string& note) {
  add(name, tensor, std::numeric_limits<double>::infinity(), 0, VerifyVerdict::kFails, note);
}

void VerifyReport::not_built(const std::string& name, const std::string& tensor, const std::string& note) {
  add(name, tensor, 0, 0, VerifyVerdict::kNotBuilt, note);
}

void VerifyReport::not_compared(const std::string& name, const std::string& tensor, const std::string& note) {
  add(name, tensor, 0, 0, VerifyVerdict::kNotCompared, note);
}

int64_t VerifyReport::count(VerifyVerdict verdict) const {
  return std::count_if(rows_.begin(), rows_.end(), [&](const VerifyRow& row) { return row.verdict == verdict; });
}

bool VerifyReport::holds() const { return count(VerifyVerdict::kHolds) > 0 && count(VerifyVerdict::kFails) == 0; }

std::string VerifyReport::table() const {
  size_t wide = 6, deep = 4;
  for (const auto& row : rows_) {
    wide = std::max(wide, row.tensor.size());
    deep = std::max(deep, row.name.size());
  }
  std::string out, folder;
  for (const auto& row : rows_) {
    if (row.folder != folder || out.empty()) {
      folder = row.folder;
      out += fmt::format("{}{}\n  {:<{}}  {:<{}}  {:>10}  {:>10}\n", out.empty() ? "" : "\n", folder, "case", deep,
                         "tensor", wide, "max diff", "tolerance");
    }
    const bool compared = row.verdict == VerifyVerdict::kHolds || row.verdict == VerifyVerdict::kFails;
    const std::string difference = compared ? fmt::format("{:.2g}", row.difference) : "-";
    const std::string tolerance = compared ? fmt::format("{:.2g}", row.tolerance) : "-";
    out += fmt::format("  {:<{}}  {:<{}}  {:>10}  {:>10}  {}{}\n", row.name, deep, row.tensor, wide, difference,
                       tolerance, word_of(row.verdict), row.note.empty() ? "" : "  (" + row.note + ")");
  }
  return out;
}

std::string VerifyReport::summary() const {
  std::set<std::string> unbuilt;
  for (const auto& row : rows_) {
    if (row.verdict == VerifyVerdict::kNotBuilt) unbuilt.insert(row.folder.substr(row.folder.find_last_of('/') + 1));
  }
  std::string names;
  for (const auto& name : unbuilt) names += (names.empty() ? "" : ", ") + name;
  return fmt::format("verify {}: {} hold, {} fail, {} not built{}, {} not compared", holds() ? "ok" : "FAILED",
                     count(VerifyVerdict::kHolds), count(VerifyVerdict::kFails), count(VerifyVerdict::kNotBuilt),
                     names.empty() ? "" : " (in " + names + ")", count(VerifyVerdict::kNotCompared));
}

Json VerifyReport::json() const {
  Json rows = Json::array();
  for (const auto& row : rows_) {
    const bool compared = row.verdict == VerifyVerdict::kHolds || row.verdict == VerifyVerdict::kFails;
    Json entry = {{"folder", row.folder},
                  {"case", row.name},
                  {"tensor", row.tensor},
                  {"verdict", word_of(row.verdict)},
                  {"ok", row.verdict == VerifyVerdict::kHolds}};
    // JSON has no infinity: null stands for "could not be compared at all".
    entry["max_abs_difference"] = compared && std::isfinite(row.difference) ? Json(row.difference) : Json(nullptr);
    entry["tolerance"] = compared ? Json(row.tolerance) : Json(nullptr);
    if (!row.note.empty()) entry["note"] = row.note;
    rows.push_back(std::move(entry));
  }
  return {{"ok", holds()},
          {"held", count(VerifyVerdict::kHolds)},
          {"failed", count(VerifyVerdict::kFails)},
          {"not_built", count(VerifyVerdict::kNotBuilt)},
          {"not_compared", count(VerifyVerdict::kNotCompared)},
          {"rows", std::move(rows)}};
}

}  // namespace lockstep
