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

const Tensor& Params::operator[](std::string_view local) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].local == local) return tensors_[i];
  }
  std::string present;
  for (const auto& spec : specs_) present += " " + spec.local;
  throw InternalError(fmt::format("the block declares no parameter \"{}\" (it has:{})", local, present),
                      std::source_location::current());
}

void Block::param(std::string local, Shape shape) {
  auto key = name_ + "." + local;
  param_at(std::move(local), std::move(key), std::move(shape));
}

void Block::param_at(std::string local, std::string key, Shape shape, bool tied) {
  params_.push_back({std::move(local), shape, {{std::move(key), shape}}, tied});
}

void Block::fused(std::string local, std::vector<ParamSource> parts) {
  Shape shape = parts.at(0).shape;
  for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].shape[0];
  params_.push_back({std::move(local), std::move(shape), std::move(parts), false});
}

}  // namespace lockstep
