#include "lockstep/zoo/hf_outputs.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Moves `from` behind `to`; whichever is there alone is the whole.
void join(HfInputs& all, const std::string& to, const std::string& from) {
  const auto part = all.find(from);
  if (part == all.end()) return;
  const auto whole = all.find(to);
  all[to] = whole == all.end() ? part->second : at::cat({whole->second, part->second}, 0);
  all.erase(from);
}

/// Numbers of the videos count on from the last of the images.
void join_counted(HfInputs& all, const std::string& name, bool with_begin) {
  const auto images = all.find("image_" + name), videos = all.find("video_" + name);
  if (images == all.end() && videos == all.end()) return;
  Tensor joined = to_dtype(images != all.end() ? images->second : videos->second, Dtype::kI64);
  if (images != all.end() && videos != all.end()) {
    const Tensor more = to_dtype(videos->second, Dtype::kI64);
    joined = with_begin ? at::cat({joined, more.narrow(0, 1, more.size(0) - 1).add(joined[-1].item<int64_t>())})
                        : at::cat({joined, more.add(joined.numel())});
  }
  all.erase("image_" + name);
  all.erase("video_" + name);
  all[name] = joined;
}

/// What was recorded chunk by chunk of the clips [N,D,L], each filled up to the longest: states behind one another, [V,D].
/// `stride`: frames of a state.
Tensor without_chunks(const Tensor& values_NDL, const Tensor& frames_AW, int64_t stride) {
  const int64_t chunk = values_NDL.size(2) * stride;  // of every clip but its last, where one is longer
  std::vector<Tensor> parts;
  for (int64_t clip = 0; clip < frames_AW.size(0); ++clip) {
    for (auto left = frames_AW[clip].sum().item<int64_t>(); left > 0; left -= chunk) {
      const int64_t states = (std::min(left, chunk) - 1) / stride + 1;
      parts.push_back(values_NDL[static_cast<int64_t>(parts.size())].narrow(1, 0, states).t());
    }
  }
  return at::cat(parts, 0);
}

/// What was recorded slice by slice, each filled up to the longest, [N,L,D]: patches behind one another, [P,D].
Tensor without_filling(const Tensor& values_NLD, const Tensor& sizes_N2) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < sizes_N2.size(0); ++i) {
    const int64_t patches = sizes_N2[i][0].item<int64_t>() * sizes_N2[i][1].item<int64_t>();
    parts.push_back(values_NLD[i].narrow(0, 0, patches));
  }
  return at::cat(parts, 0);
}

}  // namespace

HfInputs outputs_of_taps(const std::vector<std::pair<std::string, Tensor>>& taps) {
  HfInputs out;
  std::vector<std::string> text, vision;
  const auto stem_of = [](const std::string& name, const char* end) {
    return name.substr(0, name.size() - std::string(end).size());
  };
  for (const auto& [name, value] : taps) {
    if (name.ends_with(".attn_out")) text.push_back(stem_of(name, ".attn_out"));
  }
  for (const auto& [name, value] : taps) {
    if (!name.ends_with(".out")) continue;
    const std::string stem = stem_of(name, ".out");
    const auto at = std::find(text.begin(), text.end(), stem);
    if (at == text.end()) {
      out[fmt::format("vision_layer_{}", vision.size())] = value;
      out[fmt::format("vision_block_{}", vision.size())] = value;
      vision.push_back(stem);
    } else {
      out[fmt::format("layer_{}", at - text.begin())] = value;
    }
  }
  int64_t heard = 0;
  for (const auto& [name, value] : taps) {
    if (name.ends_with(".sound")) out[fmt::format("audio_layer_{}", heard++)] = value;
    if (name.find('.') == std::string::npos) out[name] = value;
    if (!text.empty() && name == text.front() + ".attn_out") out["layer0_attn_out"] = value;
    if (!text.empty() && name == text.front() + ".mlp_out") out["layer0_mlp_out"] = value;
  }
  return out;
}

HfInputs joined_outputs(HfInputs recorded, const HfInputs& inputs) {
  if (const auto sizes = inputs.find("tgt_sizes"); sizes != inputs.end()) {
    for (auto& [name, value] : recorded) {
      if (name.starts_with("vision_") && value.dim() == 3) value = without_filling(value, sizes->second);
    }
  }
  if (const auto places = recorded.find("position_ids"); places != recorded.end() && inputs.contains("attention_mask"))
    places->second = places->second.mul(inputs.at("attention_mask"));  // 0 at padding, as a batch has them
  if (const auto frames = inputs.find("feature_attention_mask"); frames != inputs.end()) {
    for (const auto& [name, stride] : {std::pair{"audio_conv1", 1}, std::pair{"audio_conv2", 2}}) {
      const auto at = recorded.find(name);
      if (at != recorded.end() && at->second.dim() == 3)
        at->second = without_chunks(at->second, frames->second, stride);
    }
  }
  for (auto& [name, value] : recorded) {  // clips one by one [C,L,D]: their states behind one another
    if ((name == "audio_encoder" || name == "audio_projection") && value.dim() == 3) value = value.flatten(0, 1);
  }
  std::vector<std::string> later;  // in the order of the calls
  for (const auto& [name, value] : recorded) {
    if (name.find('#') != std::string::npos) later.push_back(name);
  }
  for (const auto& name : later) join(recorded, name.substr(0, name.find('#')), name);
  join(recorded, "image_features", "video_features");
  join_counted(recorded, "window_index", /*with_begin=*/false);
  join_counted(recorded, "cu_window_seqlens", /*with_begin=*/true);
  return recorded;
}

}  // namespace lockstep
