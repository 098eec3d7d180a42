// What the files of MiniCPM's families share: tower, resampler, how slices are spelled among the tokens, what was recorded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/data/slice_image.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/navit_vision.h"
#include "lockstep/model/layers/resampler.h"
#include "lockstep/model/layers/text_config.h"
#include "lockstep/model/model.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/hf_inputs.h"
#include "lockstep/zoo/media_rules.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep::minicpm {

/// Where the language model stands in their files.
inline const TextPrefixes kTextAt{.body = "llm.model", .head = "llm.lm_head"};

/// All of these throw UserError(kCheckpoint) naming the key, what is expected and what was found.
TextConfig read_text(const HfConfig& config);
NavitVisionConfig read_vision(const HfConfig& config);
ResamplerConfig read_resampler(const HfConfig& config);
/// Keys of other models of these names that change what is computed.
void refuse_other_models(const HfConfig& config);
/// "" for 2.6, else what says otherwise: all versions have one architecture, and language models and resamplers of their own.
std::string version_unless_2_6(const HfConfig& config);

/// The layout of the slices, the tower and the resampler: "vpm" and "resampler", from pixel_values to media.
void add_vision(Model& model, const HfConfig& config);

/// How pictures stand among the tokens.
struct SliceSpelling {
  int64_t queries = 64;
  bool numbers = false;  // use_image_id: a number before each picture
  std::string filled = "<unk>";
  std::string whole_begin = "<image>", whole_end = "</image>";
  std::string part_begin = "<slice>", part_end = "</slice>";
  std::string number_begin = "<image_id>", number_end = "</image_id>";
};
/// Of preprocessor_config.json.
SliceSpelling read_spelling(const HfConfig& file, int64_t queries);
/// Pictures are slices; a video is its frames, a picture each without a number. `parts.tokenizer` must have every mark of the
/// spelling as a token of its own.
void add_picture_rules(ChatParts& parts, const SliceImageConfig& slices, const SliceSpelling& spelling,
                       const std::string& where);
/// <|endoftext|> ends an answer too, whatever the folder says. Source: OpenBMB/MiniCPM-V-2_6 modeling_minicpmv.py, terminators.
void add_stop_tokens(ChatParts& parts);
/// How slices of a folder are made. Throws unless they fit the tower and the resampler.
SliceImageConfig read_slices(const HfConfig& file, const NavitVisionConfig& vision);

/// pixel_values [N,3,patch,patch*L], tgt_sizes [N,2] and image_bound [N,3] (row, first, end) as blocks of the rows.
void add_recorded_slices(std::vector<Features>& rows, const HfInputs& inputs);
/// A row whose first tokens are a picture's, in as many slices as there is room for.
Features typical_row(const HfConfig& config, int64_t tokens);

std::unique_ptr<Processor> load_vision_processor(const ModelPlace& place);
std::vector<std::pair<std::string, Json>> fresh_vision_files(const std::string& size, int64_t vocab);
/// The same with a tower for sound: MiniCPM-o.
std::vector<std::pair<std::string, Json>> fresh_omni_files(const std::string& size, int64_t vocab);
/// Matrices as the text's, biases of the resampler's attention 0.
double fresh_spread(const HfConfig& config, const std::string& key);

}  // namespace lockstep::minicpm
