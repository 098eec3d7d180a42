// Rows of OmniLMM: one picture in a conversation, and Zephyr's way of writing one.
// Source: OpenBMB/OmniLMM chat.py, omnilmm/train/train_utils.py omni_preprocess, omnilmm/model/utils.py build_transform.
#include <algorithm>
#include <cmath>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/wrapped_processor.h"
#include "lockstep/model/layers/navit_layout.h"
#include "lockstep/model/weight_files.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/omnilmm.h"

namespace lockstep::omnilmm {
namespace {

/// What a conversation is told first, where it says nothing itself: the model has learnt with it.
constexpr const char* kSystem =
    "You are an artificial intelligence assistant, which gives helpful, detailed, and polite answers to the human's "
    "questions.";

class OneProcessor final : public WrappedProcessor {
 public:
  using WrappedProcessor::WrappedProcessor;

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    Features row = inner().train_features(prepared(sample), options);
    if (!sample.messages.empty() && sample.messages.back().role == "assistant") end_with_last_label(row);
    row.sample = sample;
    return row;
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    Features row = inner().prompt_features(prepared(sample), options);
    row.sample = sample;
    return row;
  }

 private:
  /// Nothing stands behind the last answer: the line break that ends each other message goes.
  static void end_with_last_label(Features& row) {
    if (std::ranges::all_of(row.labels, [](int32_t label) { return label == -100; })) return;
    while (row.labels.back() == -100) {
      row.labels.pop_back();
      row.input_ids.pop_back();
    }
  }

  static Sample prepared(const Sample& sample) {
    const size_t pictures = media_count(sample, Modality::kImage);
    if (pictures > 1) {
      throw data_error(fmt::format("{}: expected at most one picture (the model was made for conversations about "
                                   "one), found {}",
                                   sample.where, pictures),
                       "make a row of each picture, or take a model that reads several");
    }
    Sample out = sample;
    if (!out.messages.empty() && out.messages.front().role != "system")
      out.messages.insert(out.messages.begin(), {.role = "system", .content = kSystem});
    return out;
  }
};

ClipImageConfig picture_rules(const EvaVisionConfig& vision) {
  ClipImageConfig rules;
  rules.backend = ImageBackend::kPillow;
  rules.do_center_crop = false;
  rules.shortest_edge = 0;
  rules.width = rules.height = vision.image_size;
  return rules;
}

/// The files may hold the queries' places. They never learn, so that they are what is computed here, rounded as the file's
/// dtype rounds; a file that holds others is of another model.
void check_stored_places(const std::filesystem::path& dir, const Config& config) {
  const auto has = [&](const char* name) { return std::filesystem::exists(dir / name); };
  if (!has("model.safetensors") && !has("model.safetensors.index.json") && !has("pytorch_model.bin") &&
      !has("pytorch_model.bin.index.json"))
    return;
  const Weights weights = Weights::open(dir);
  const TensorSpec* spec = weights.find(kStoredPlaces);
  if (spec == nullptr) return;
  const int64_t edge = config.resampler.query_edge, width = config.resampler.text_hidden / 2;
  const auto refuse = [&](const std::string& expected, const std::string& found) {
    return checkpoint_error(
        fmt::format("{}: {}: expected {}, found {}", weights.file_of(kStoredPlaces), kStoredPlaces, expected, found),
        "the files are of another model; take those of the release");
  };
  if (spec->shape != Shape{edge * edge, 2 * width})
    throw refuse(fmt::format("{} x {} (num_query, hidden_size)", edge * edge, 2 * width),
                 fmt::format("{}", fmt::join(spec->shape, " x ")));
  const Tensor stored = to_dtype(weights.read(kStoredPlaces), Dtype::kF32), waves = place_waves(edge, width);
  const auto *value = stored.const_data_ptr<float>(), *wave = waves.const_data_ptr<float>();
  const double allowed = spec->dtype == Dtype::kBF16 ? 4e-3 : spec->dtype == Dtype::kF16 ? 5e-4 : 1e-4;
  for (int64_t i = 0; i < edge * edge * 2 * width; ++i) {
    const int64_t query = i / (2 * width), at = i % (2 * width);
    const int64_t place = at < width ? query % edge : query / edge;
    const float computed = wave[place * width + at % width];
    if (std::abs(static_cast<double>(value[i]) - computed) <= allowed) continue;
    throw refuse(fmt::format("{:.6f} at {}, {} (sine and cosine of the query's column and row)", computed, query, at),
                 fmt::format("{:.6f}", value[i]));
  }
}

}  // namespace

std::string_view chat_template() {
  // The line ends with its message: a next message that began with it would stand behind a special token, where the
  // tokenizer begins a word.
  return R"({%- for message in messages -%}
{{- '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)";
}

std::unique_ptr<Processor> load_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const Config config = read_config(HfConfig::load(place));
  check_stored_places(dir, config);
  ChatParts parts = load_chat_parts(place, chat_template());
  for (const char* mark : {kStart, kEnd}) (void)own_token(parts.tokenizer, mark, dir.string());
  const int32_t token = token_of_folder(place, kPatch, config.text.vocab);
  const int64_t queries = config.resampler.queries;
  parts.media.reserved = {kPatch, kStart, kEnd};
  parts.media.kinds[Modality::kImage] = {
      .placeholder = std::string(media_mark(Modality::kImage)),
      .prepare = [rules = picture_rules(config.vision)](
                     const LoadedMedium& medium, const MediaOptions&,
                     const std::string& row) { return std::vector{clip_pixels(medium.frames.at(0), rules, row)}; },
      .spell =
          [token, queries](const std::vector<MediaBlock>&, int64_t) {
            return std::vector<MediaRun>{
                {.text = kStart}, {.token = token, .count = queries, .block = 0}, {.text = kEnd}};
          }};
  parts.media.front_ends_lines = true;
  return std::make_unique<OneProcessor>(std::make_unique<ChatProcessor>(std::move(parts)));
}

}  // namespace lockstep::omnilmm
