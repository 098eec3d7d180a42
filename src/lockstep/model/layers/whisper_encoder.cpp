// C clips, W frames of all of them, V states of all, L of one, M tokens, D model, A heads, H head size.
// Source: transformers 5.23 models/whisper WhisperEncoder, models/qwen2_5_omni Qwen2_5OmniAudioEncoder; MiniCPM-o 2.6
// modeling_minicpmo.py MiniCPMWhisperEncoder, MultiModalProjector.
#include "lockstep/model/layers/whisper_encoder.h"

#include <cmath>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kWindow = 3;
constexpr double kLongestWave = 10000;  // of positions, over 2 pi

/// A kernel [D,I,3] as a matrix over the three frames of a window, one behind the other.
Tensor frame_by_frame(const Tensor& w) { return w.permute({0, 2, 1}).reshape({w.size(0), -1}); }

/// A convolution over time as a product: rows [N,I] seen through windows [O,3], where row N is silence.
Tensor convolve(const Params& params, const std::string& module, const Tensor& rows_NI, const Tensor& windows_O3) {
  const Tensor with_silence = at::cat({rows_NI, rows_NI.new_zeros({1, rows_NI.size(1)})}, 0);
  const Tensor seen = with_silence.index_select(0, windows_O3.flatten()).view({-1, kWindow * rows_NI.size(1)});
  return params.linear(module, seen, {.flat = frame_by_frame});
}

/// Sines, then cosines, of places [V] -> [V,D] f32; wave lengths rise by one factor. Source: Whisper's sinusoids().
Tensor waves(const Tensor& places_V, int64_t width) {
  const int64_t half = width / 2;
  const double step = std::log(kLongestWave) / static_cast<double>(half - 1);
  std::vector<float> rates;
  for (int64_t i = 0; i < half; ++i) rates.push_back(std::exp(static_cast<float>(-step) * static_cast<float>(i)));
  const Tensor rates_H = sent_to(from_values(std::span<const float>(rates), {half}), places_V.device());
  const Tensor turned_VH = places_V.to(at::kFloat).unsqueeze(1).mul(rates_H);
  return at::cat({turned_VH.sin(), turned_VH.cos()}, 1);
}

/// Whether each clip, or chunk, is seen whole by all of its states.
bool seen_whole(const Tensor& ends_C2, int64_t stretch) {
  const auto* end = ends_C2.const_data_ptr<int64_t>();
  int64_t begin = 0;
  for (int64_t i = 0; i < ends_C2.size(0); begin = end[2 * i++]) {
    const int64_t length = end[2 * i] - begin;
    if (end[2 * i + 1] != length || (stretch > 0 && length > stretch)) return false;
  }
  return true;
}

/// The mean of the states of each window [M,pool].
Tensor pooled(const Tensor& states_VD, const Tensor& windows_MP) {
  return states_VD.index_select(0, windows_MP.flatten()).unflatten(0, {windows_MP.size(0), windows_MP.size(1)}).mean(1);
}

/// [1,1,L,L] bool: a state sees its own stretch and the earlier ones, of the first `seen` states.
Tensor sight_of(int64_t length, int64_t seen, int64_t stretch, const Tensor& like) {
  const Tensor at_L = at::arange(length, like.options().dtype(at::kLong));
  Tensor may_LL = at_L.lt(seen).unsqueeze(0);
  if (stretch > 0) {
    const Tensor of_L = at_L.div(stretch, "floor");
    may_LL = may_LL.bitwise_and(of_L.unsqueeze(0).le(of_L.unsqueeze(1)));
  }
  return may_LL.expand({length, length}).unsqueeze(0).unsqueeze(0);
}

}  // namespace

WhisperEmbeddings::WhisperEmbeddings(const std::string& name, const WhisperConfig& config)
    : Block(name + ".embeddings", Component::kAudio, Modality::kAudio), config_(config) {
  const auto at_tower = [&](const std::string& local, const Shape& shape) {
    param_at(local, name + "." + local, shape);
  };
  at_tower("conv1.weight", {config.hidden, config.bins, kWindow});
  at_tower("conv1.bias", {config.hidden});
  at_tower("conv2.weight", {config.hidden, config.hidden, kWindow});
  at_tower("conv2.bias", {config.hidden});
  if (config.learnt_positions) {
    lookup_table_at("embed_positions.weight", name + ".embed_positions.weight", {config.max_positions, config.hidden});
  }
  reads({"audio_values", "frame_windows", "state_windows", "audio_places"});
  writes({"audio"});
}

Flow WhisperEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor &w = params["conv1.weight"], &frames = in["audio_values"], &windows_W3 = in["frame_windows"];
  if (frames.dim() != 2 || frames.size(1) != config_.bins || frames.size(0) != windows_W3.size(0)) {
    throw checkpoint_error(fmt::format("{}: expected {} frames of {} bins (config.json num_mel_bins), found {} values "
                                       "in {} frames",
                                       name(), windows_W3.size(0), config_.bins, frames.numel(), frames.size(0)),
                           "feature_size of preprocessor_config.json must be that of the tower");
  }
  const Tensor conv1_WD = convolve(params, "conv1", frames.to(w.scalar_type()), windows_W3);
  tap(context, "audio_conv1", conv1_WD);
  const Tensor conv2_VD = convolve(params, "conv2", fn::activation(config_.activation, conv1_WD), in["state_windows"]);
  tap(context, "audio_conv2", conv2_VD);
  const Tensor& places_V = in["audio_places"];
  const Tensor places_VD = config_.learnt_positions
                               ? params.rows("embed_positions", places_V)
                               : waves(sent_to(places_V, conv2_VD.device()), config_.hidden).to(conv2_VD.scalar_type());
  return {{"audio", fn::activation(config_.activation, conv2_VD).add(places_VD)}};
}

WhisperLayer::WhisperLayer(std::string name, const WhisperConfig& config)
    : Block(std::move(name), Component::kAudio, Modality::kAudio), config_(config) {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden;
  for (const char* norm : {"self_attn_layer_norm", "final_layer_norm"}) {
    param(std::string(norm) + ".weight", {hidden});
    param(std::string(norm) + ".bias", {hidden});
  }
  fused("self_attn.qkv.weight", {{key("self_attn.q_proj.weight"), {hidden, hidden}},
                                 {key("self_attn.k_proj.weight"), {hidden, hidden}},
                                 {key("self_attn.v_proj.weight"), {hidden, hidden}}});
  for (const char* local : {"self_attn.q_proj.bias", "self_attn.v_proj.bias", "self_attn.out_proj.bias"})
    param(local, {hidden});  // keys have none
  param("self_attn.out_proj.weight", {hidden, hidden});
  param("fc1.weight", {config.mlp, hidden});
  param("fc1.bias", {config.mlp});
  param("fc2.weight", {hidden, config.mlp});
  param("fc2.bias", {hidden});
  reads({"audio", "clip_ends"});
  writes({"audio"});
}

Flow WhisperLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const auto norm = [&](const std::string& local, const Tensor& x) {
    return fn::layer_norm(x, params[local + ".weight"], params[local + ".bias"], config_.norm_eps);
  };
  const Tensor& x_VD = in["audio"];
  const Tensor h_VD = x_VD.add(attend(params, norm("self_attn_layer_norm", x_VD), in["clip_ends"]));
  const Tensor f_VF = fn::activation(config_.activation, params.linear("fc1", norm("final_layer_norm", h_VD)));
  Tensor out_VD = h_VD.add(params.linear("fc2", f_VF, {.summed = true}));
  tap(context, name() + ".sound", out_VD);
  return {{"audio", std::move(out_VD)}};
}

Tensor WhisperLayer::attend(const Params& params, const Tensor& x_VD, const Tensor& ends_C2) const {
  const auto qkv = params.linear("self_attn.qkv", x_VD).chunk(3, -1);
  const auto heads = [&](const Tensor& x) { return x.unsqueeze(0).unflatten(-1, {config_.heads, -1}).transpose(1, 2); };
  const Tensor q_1AVH = heads(qkv[0].add(params["self_attn.q_proj.bias"])), k_1AVH = heads(qkv[1]),
               v_1AVH = heads(qkv[2].add(params["self_attn.v_proj.bias"]));
  const auto projected = [&](const Tensor& o_1VD) { return params.linear("self_attn.out_proj", o_1VD.select(0, 0)); };
  if (ends_C2.size(0) > 1 && seen_whole(ends_C2, config_.stretch)) {
    const Tensor ends_C = ends_C2.select(1, 0).contiguous();
    return projected(fn::merge_heads(fn::attention(q_1AVH, k_1AVH, v_1AVH, {.row_ends = &ends_C})));
  }
  const auto* end = ends_C2.const_data_ptr<int64_t>();
  std::vector<Tensor> clips;
  int64_t begin = 0;
  for (int64_t i = 0; i < ends_C2.size(0); ++i) {
    const int64_t length = end[2 * i] - begin, seen = end[2 * i + 1];
    const auto part = [&](const Tensor& x_1AVH) { return x_1AVH.narrow(2, begin, length); };
    const bool whole = seen == length && (config_.stretch == 0 || length <= config_.stretch);
    const Tensor sight = whole ? Tensor() : sight_of(length, seen, config_.stretch, x_VD);
    clips.push_back(
        fn::merge_heads(fn::attention(part(q_1AVH), part(k_1AVH), part(v_1AVH), {.mask = whole ? nullptr : &sight})));
    begin += length;
  }
  check(begin == x_VD.size(0), "clips end with the last state");
  return projected(clips.size() == 1 ? clips.front() : at::cat(clips, 1));
}

WhisperNorm::WhisperNorm(std::string name, const WhisperConfig& config)
    : Block(std::move(name), Component::kAudio, Modality::kAudio), config_(config) {
  param("weight", {config.hidden});
  param("bias", {config.hidden});
  reads({"audio"});
  writes({"audio"});
}

Flow WhisperNorm::forward(const Params& params, const Flow& in, const Context& context) const {
  Tensor out_VD = fn::layer_norm(in["audio"], params["weight"], params["bias"], config_.norm_eps);
  tap(context, "audio_encoder", out_VD);
  return {{"audio", std::move(out_VD)}};
}

PooledNorm::PooledNorm(std::string name, const WhisperConfig& config)
    : Block(std::move(name), Component::kAudio, Modality::kAudio), config_(config) {
  param("weight", {config.hidden});
  param("bias", {config.hidden});
  reads({"audio", "pool_windows"});
  writes({"audio"});
}

Flow PooledNorm::forward(const Params& params, const Flow& in, const Context&) const {
  return {{"audio", fn::layer_norm(pooled(in["audio"], in["pool_windows"]), params["weight"], params["bias"],
                                   config_.norm_eps)}};
}

AudioProjector::AudioProjector(std::string name, const AudioProjectorConfig& config)
    : Block(std::move(name), Component::kAudioProjector, Modality::kAudio), config_(config) {
  param("linear1.weight", {config.text_hidden, config.audio_hidden});
  param("linear1.bias", {config.text_hidden});
  param("linear2.weight", {config.text_hidden, config.text_hidden});
  param("linear2.bias", {config.text_hidden});
  reads({"audio", "pool_windows"});
  writes({"sound"});
}

Flow AudioProjector::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor inner_VD = fn::activation(config_.activation, params.linear("linear1", in["audio"]));
  const Tensor states_VD = params.linear("linear2", inner_VD);
  tap(context, "audio_projection", states_VD);
  Tensor sound_MD = pooled(states_VD, in["pool_windows"]);
  tap(context, "audio_tokens", sound_MD);
  return {{"sound", std::move(sound_MD)}};
}

AudioLinear::AudioLinear(std::string name, const AudioProjectorConfig& config)
    : Block(std::move(name), Component::kAudioProjector, Modality::kAudio) {
  param("weight", {config.text_hidden, config.audio_hidden});
  param("bias", {config.text_hidden});
  reads({"audio"});
  writes({"sound"});
}

Flow AudioLinear::forward(const Params& params, const Flow& in, const Context& context) const {
  Tensor sound_MD = params.linear("", in["audio"]);
  tap(context, "audio_features", sound_MD);
  return {{"sound", std::move(sound_MD)}};
}

}  // namespace lockstep
