// One row of a data set in Lockstep's own form, whatever form it came in.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/modality.h"
#include "lockstep/data/media_folders.h"
#include "lockstep/data/row_objects.h"
#include "lockstep/data/speech.h"

namespace lockstep {

/// A turn. `content` may hold "<image>", "<video>" and "<audio>" marks; they are matched with Sample::images, videos and
/// audios in order.
struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  bool trained = true;  // assistant only: ms-swift's per-message "loss": false switches it off
  double weight = 1;    // assistant only: of its tokens in the loss, ms-swift's per-message "loss_scale"
  /// What a template reads of it besides, as JSON text: {"tool_calls": [...]}; empty: nothing.
  std::string fields = {};
  /// So many marks at the start of `content` were not written in its text: media of the row without a mark, or parts before
  /// the first text. Families whose own code sets such media on lines of their own do it for these alone.
  size_t media_in_front = 0;
};

/// A film as pictures of it, in order, or as a file: paths or data: URIs.
struct Video {
  std::vector<std::string> frames = {};
  double fps = 0;         // how many frames stand for a second; of a file, how many are taken a second; 0: not said
  std::string file = {};  // empty: frames
  /// What the row asks for besides; 0: nothing. The first three are a file's alone.
  int64_t num_frames = 0, min_frames = 0, max_frames = 0;
  int64_t min_pixels = 0, max_pixels = 0, total_pixels = 0;  // of a frame, and of all
  std::string sound = {};  // what is heard with its frames, as Sample::audios; empty: not said
  bool operator==(const Video&) const = default;
};
/// As a row may have it: a path or a list of frames, or an object with what is asked for besides.
Json video_json(const Video& video);

/// What rows can hold beside text.
inline constexpr std::array kMediaKinds{Modality::kImage, Modality::kVideo, Modality::kAudio};
std::string_view media_mark(Modality kind);  // "<image>"

struct Sample {
  std::vector<Message> messages;
  std::vector<std::string> images;  // absolute paths, or data: URIs
  std::vector<Video> videos;
  std::vector<std::string> audios;          // as images
  RowObjects objects;                       // what <ref-object> and <bbox> in the texts stand for
  std::string tools;                        // functions that may be called, a list as JSON text; empty: none
  std::string variables;                    // what the chat template reads besides, as JSON text; empty: nothing
  int64_t min_pixels = 0, max_pixels = 0;   // of its pictures, where the row's chat_template_kwargs say so; 0: not said
  std::optional<Speech> speech;             // of the last answer
  std::vector<int32_t> input_ids, labels;   // of a row that is token ids already; messages are empty then
  bool continues = false, goes_on = false;  // of a piece of a longer text: something stands before it, behind it
  std::vector<std::string> references;      // accepted answers where the row's answer is a list; else empty
  std::string metadata;  // the row's "metadata" as JSON text, whatever it is; empty: the row has none
  std::string group;     // "group"/"channel" of the row, for figures by kind; may be empty
  std::string adapter;   // the row's "adapter": which of several it is answered with; empty: not said
  std::string id;        // the row's own "id" as text; empty: it has none
  std::string where;     // "train.jsonl:17": named in every error about this row
  int64_t row = 0;       // index in the data set, over all its files
};

/// As a row's adapter: the model alone. As peft calls it.
inline constexpr const char* kBaseAlone = "__base__";

size_t media_count(const Sample& sample, Modality kind);
/// "2 images and 1 audio", of some kinds; "" where there are none.
std::string describe_media(const Sample& sample, Modalities of = kMedia);
/// All files and data: URIs that the row refers to, frames of videos one by one.
std::vector<std::string> media_references(const Sample& sample);

/// Reads a row of any form that docs/rows.md lists: token ids, turns, or a question and its answer. Relative paths of media
/// are looked for in `folders`. More images than marks: the marks missing are put in front of the first user message. A
/// response that is a list of texts names several accepted answers: the first is the one that is trained. Throws
/// UserError(kData) naming row, field, expected and found.
Sample sample_from_row(const Json& row, const std::string& where, const MediaFolders& folders);

/// Whether the row has boxes or names that `sample`, read from it, has not: no text of it has a place for them.
bool leaves_out_objects(const Json& row, const Sample& sample);

/// Columns of the row that its form does not read.
std::vector<std::string> unread_columns(const Json& row);

}  // namespace lockstep
