// Rows for MiniCPM: pictures in slices, and how they stand among the tokens.
#include <algorithm>
#include <numeric>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/minicpm.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep::minicpm {
namespace {

/// What stands for a picture until it is spelled, as the released processor writes it.
constexpr std::string_view kPicture = "(<image>./</image>)", kFilm = "(<video>./</video>)";

/// Writes pictures from their slices alone.
class Speller {
 public:
  Speller(const SliceSpelling& spelling, int32_t token) : spelling_(spelling), token_(token) {}

  /// All slices of a row's picture: the whole, then its parts line by line.
  std::vector<MediaRun> picture(const std::vector<MediaBlock>& slices, int64_t index) const {
    std::vector<MediaRun> runs;
    if (spelling_.numbers)
      runs.push_back({.text = fmt::format("{}{}{}", spelling_.number_begin, index, spelling_.number_end)});
    add(runs, slices);
    return runs;
  }

  /// Frames are pictures without numbers, a line each.
  std::vector<MediaRun> film(const std::vector<MediaBlock>& slices) const {
    std::vector<MediaRun> runs;
    add(runs, slices);
    return runs;
  }

 private:
  void add(std::vector<MediaRun>& runs, const std::vector<MediaBlock>& slices) const {
    int64_t part = 0;  // of the picture, behind its whole
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t columns = slices[i].columns;
      const bool whole = columns == 0;
      if (whole ? i > 0 : part > 0 && part % columns == 0) runs.push_back({.text = "\n"});
      part = whole ? 0 : part + 1;
      runs.push_back({.text = whole ? spelling_.whole_begin : spelling_.part_begin});
      runs.push_back({.token = token_, .count = spelling_.queries, .block = i});
      runs.push_back({.text = whole ? spelling_.whole_end : spelling_.part_end});
    }
  }

  SliceSpelling spelling_;
  int32_t token_;
};

/// Of a slice as it was recorded [3, patch, patch*L], its first `patches` patches as rows.
MediaBlock recorded_slice(const Tensor& pixels, int64_t rows, int64_t columns) {
  const int64_t patch = pixels.size(1), patches = rows * columns;
  const Tensor values =
      pixels.narrow(2, 0, patches * patch).unflatten(2, {patches, patch}).permute({2, 0, 1, 3}).flatten(1).contiguous();
  MediaBlock block = block_of(values, 0, patches);
  block.facts[kPatchGrid] = {rows, columns};
  return block;
}

}  // namespace

SliceSpelling read_spelling(const HfConfig& file, int64_t queries) {
  SliceSpelling spelling{.queries = file.size("image_feature_size", queries, {.most = 65536}),
                         .numbers = file.flag("use_image_id", false)};
  if (spelling.queries != queries) {
    throw checkpoint_error(fmt::format("{}: image_feature_size: expected {} (config.json query_num), found {}",
                                       file.where(), queries, spelling.queries));
  }
  const auto read = [&](const char* key, std::string& word) {
    word = file.text(key, word);
    if (word.empty())
      throw checkpoint_error(fmt::format("{}: {}: expected a token's text, found \"\"", file.where(), key));
  };
  read("unk", spelling.filled);
  read("im_start", spelling.whole_begin);
  read("im_end", spelling.whole_end);
  read("slice_start", spelling.part_begin);
  read("slice_end", spelling.part_end);
  read("im_id_start", spelling.number_begin);
  read("im_id_end", spelling.number_end);
  return spelling;
}

SliceImageConfig read_slices(const HfConfig& file, const NavitVisionConfig& vision) {
  const SliceImageConfig config = read_slice_image_config(file.json(), file.where());
  if (config.patch == vision.patch) return config;
  throw checkpoint_error(fmt::format("{}: patch_size: expected {} (config.json vision_config), found {}", file.where(),
                                     vision.patch, config.patch));
}

void add_picture_rules(ChatParts& parts, const SliceImageConfig& slices, const SliceSpelling& spelling,
                       const std::string& where) {
  const Speller speller(spelling, own_token(parts.tokenizer, spelling.filled, where));
  // The released code finds pictures by these tokens, so that no text may hold them.
  for (const auto& mark : {spelling.whole_end, spelling.part_begin, spelling.part_end})
    parts.media.reserved.push_back(mark);
  for (const auto& mark : {spelling.whole_begin, spelling.whole_end, spelling.part_begin, spelling.part_end})
    (void)own_token(parts.tokenizer, mark, where);
  parts.media.kinds[Modality::kImage] = {
      .placeholder = std::string(kPicture),
      .prepare =
          [slices](const LoadedMedium& medium, const MediaOptions& options, const std::string& row) {
            SliceImageConfig limits = slices;
            for (const int64_t asked : {options.max_tiles, options.max_slices}) {
              if (asked > 0) limits.max_slices = asked;
            }
            return slice_pixels(medium.frames.at(0), limits, row);
          },
      .spell = [speller](const std::vector<MediaBlock>& blocks,
                         int64_t index) { return speller.picture(blocks, index); },
      .ends_line = true};
  parts.media.kinds[Modality::kVideo] = {
      .placeholder = std::string(kFilm),
      .prepare =
          [slices](const LoadedMedium& medium, const MediaOptions& options, const std::string& row) {
            SliceImageConfig limits = slices;
            limits.max_slices = std::max<int64_t>({1, options.video_max_tiles, options.video_max_slices});
            std::vector<MediaBlock> blocks;
            for (const size_t frame : evenly_chosen(medium.frames.size(), options.max_frames)) {
              for (MediaBlock& slice : slice_pixels(medium.frames[frame], limits, row)) {
                slice.modality = Modality::kVideo;
                blocks.push_back(std::move(slice));
              }
            }
            return blocks;
          },
      .spell = [speller](const std::vector<MediaBlock>& blocks, int64_t) { return speller.film(blocks); },
      .ends_line = true,
      .film = {.choose = frame_a_second, .each_alone = true}};
}

void add_stop_tokens(ChatParts& parts) {
  if (const auto id = parts.tokenizer.id_of("<|endoftext|>")) parts.stop_tokens.push_back(*id);
}

std::unique_ptr<Processor> load_vision_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig config = HfConfig::load(place);
  const HfConfig file = picture_config(dir, {"preprocessor_config.json"}, "image_processor");
  ChatParts parts = load_chat_parts(place, chatml_template());
  add_stop_tokens(parts);
  add_picture_rules(parts, read_slices(file, read_vision(config)), read_spelling(file, read_resampler(config).queries),
                    file.where());
  return std::make_unique<ChatProcessor>(std::move(parts));
}

void add_recorded_slices(std::vector<Features>& rows, const HfInputs& inputs) {
  if (!inputs.contains("pixel_values")) return;
  const Tensor &pixels = inputs.at("pixel_values"), &sizes_N2 = inputs.at("tgt_sizes"),
               &bounds_N3 = inputs.at("image_bound");
  check(pixels.size(0) == sizes_N2.size(0) && pixels.size(0) == bounds_N3.size(0), "recorded inputs: a bound a slice");
  const int64_t width = inputs.at("input_ids").size(1);
  const bool left = layout_of(inputs) == RowLayout::kLeftPadded;
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    const auto number = [&](const Tensor& table, int64_t column) { return table[i][column].item<int64_t>(); };
    Features& row = rows.at(static_cast<size_t>(number(bounds_N3, 0)));
    const int64_t padding = left ? width - static_cast<int64_t>(row.input_ids.size()) : 0;
    MediaBlock block = recorded_slice(pixels[i], number(sizes_N2, 0), number(sizes_N2, 1));
    block.places.resize(static_cast<size_t>(number(bounds_N3, 2) - number(bounds_N3, 1)));
    std::iota(block.places.begin(), block.places.end(), static_cast<int32_t>(number(bounds_N3, 1) - padding));
    row.media.push_back(std::move(block));
  }
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  constexpr int64_t kSlices = 10, kLongest = 256;  // nine and the whole; patches of an edge
  const NavitVisionConfig vision = read_vision(config);
  const int64_t each = read_resampler(config).queries;
  const int64_t pixels = config.size("image_size", 448, {.most = 65536});
  const int64_t edge = std::clamp<int64_t>(pixels / vision.patch, 1, kLongest);
  Features row = typical_text_row(tokens);
  const int64_t slices = std::min(kSlices, (tokens - 1) / each);
  for (int64_t i = 0; i < slices; ++i) {
    MediaBlock slice{.shape = {edge * edge, vision.patch_values()}, .facts = {{kPatchGrid, {edge, edge}}}};
    slice.places.resize(static_cast<size_t>(each));
    std::iota(slice.places.begin(), slice.places.end(), static_cast<int32_t>(i * each));
    row.media.push_back(std::move(slice));
  }
  std::fill_n(row.labels.begin(), slices * each, -100);
  return row;
}

}  // namespace lockstep::minicpm
