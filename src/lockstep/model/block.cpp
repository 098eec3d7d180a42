#include "lockstep/model/block.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

std::string_view component_name(Component component) {
  switch (component) {
    case Component::kLlm:
      return "llm";
    case Component::kVision:
      return "vision";
    case Component::kProjector:
      return "projector";
    case Component::kAudio:
      return "audio";
    case Component::kAudioProjector:
      return "audio_projector";
    case Component::kTalker:
      return "talker";
  }
  return "?";
}

const Tensor* Params::find(std::string_view local) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].local == local) return &tensors_[i];
  }
  return nullptr;
}

const Tensor& Params::operator[](std::string_view local) const {
  if (const Tensor* found = find(local)) return *found;
  std::string present;
  for (const auto& spec : specs_) present += " " + spec.local;
  throw InternalError(fmt::format("the block declares no parameter \"{}\" (it has:{})", local, present),
                      std::source_location::current());
}

namespace {

ParamKind kind_of(const std::string& key, const Shape& shape) {
  return shape.size() >= 2 && key.ends_with(".weight") ? ParamKind::kMatrix : ParamKind::kPlain;
}

}  // namespace

void Block::param(std::string local, Shape shape) {
  auto key = name_ + "." + local;
  param_at(std::move(local), std::move(key), std::move(shape));
}

void Block::param_at(std::string local, std::string key, Shape shape) {
  const ParamKind kind = kind_of(key, shape);
  params_.push_back({.local = std::move(local), .shape = shape, .sources = {{std::move(key), shape}}, .kind = kind});
}

void Block::lookup_table(std::string local, Shape shape) {
  param(std::move(local), std::move(shape));
  params_.back().kind = ParamKind::kTable;
}

void Block::lookup_table_at(std::string local, std::string key, Shape shape) {
  param_at(std::move(local), std::move(key), std::move(shape));
  params_.back().kind = ParamKind::kTable;
}

void Block::tied(std::string local, std::string key, Shape shape, std::string untied_key) {
  param_at(std::move(local), std::move(key), std::move(shape));
  params_.back().tied = true;
  params_.back().untied_key = std::move(untied_key);
}

void Block::fused(std::string local, std::vector<ParamSource> parts) {
  Shape shape = parts.at(0).shape;
  for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].shape[0];
  const ParamKind kind = kind_of(parts[0].key, shape);
  params_.push_back({.local = std::move(local), .shape = std::move(shape), .sources = std::move(parts), .kind = kind});
}

}  // namespace lockstep
