// The seam between data and families: a Processor turns a Sample into Features. One a family, in zoo/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/search_path.h"
#include "lockstep/data/features.h"

namespace lockstep {

class Tokenizer;

/// What becomes of a row that is longer than max_length. Placeholders of media are never cut.
/// kTurns: each turn in proportion. kSplit: texts have become several rows before (session/row_pieces.h); what cannot, as kRight.
enum class Truncation { kDelete, kRight, kLeft, kTurns, kSplit };

/// What boxes of grounding are counted in: thousandths of the picture's edges, or pixels of it as the tower sees it.
enum class BoxUnit { kOfFamily, kThousandths, kPixels };

/// What a person asks of media where a family takes them in several ways; 0: as the checkpoint has it. ms-swift's
/// MIN_PIXELS, MAX_PIXELS, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS, VIDEO_TOTAL_PIXELS, INPUT_SIZE, MAX_NUM, VIDEO_MAX_NUM,
/// MAX_SLICE_NUMS, VIDEO_MAX_SLICE_NUMS, MAX_NUM_FRAMES, FPS, FPS_MIN_FRAMES, FPS_MAX_FRAMES, NFRAMES, VIDEO_SEGMENTS,
/// SAMPLING_RATE and USE_AUDIO_IN_VIDEO.
struct MediaOptions {
  /// LLaMA-Factory's way with pictures and films: shrink_to_pixels, min_pixels, video_min_pixels and video_max_pixels are what
  /// they are brought to before a family takes them, and every family takes fps frames a second (MEDIA_AS=llama_factory).
  bool as_llama_factory = false;
  int64_t shrink_to_pixels = 0;  // ms-swift's --max_pixels: larger images are scaled down before a family takes them
  int64_t min_pixels = 0, max_pixels = 0;              // of an image, as the tower sees it
  int64_t video_min_pixels = 0, video_max_pixels = 0;  // of a frame
  int64_t video_total_pixels = 0;                      // that the frames of a video share
  int64_t film_max_pixels = 0;                         // of a frame, as a film's row says: within what they come to
  int64_t tile_size = 0;                               // pixels of a tile's edge
  int64_t max_tiles = 0;                               // of an image that a family cuts; 0: as the checkpoint has it
  int64_t video_max_tiles = 0;                         // of a frame; 0: one
  int64_t max_slices = 0, video_max_slices = 0;        // the same, for a family that calls them slices
  int64_t max_frames = 0;  // of a video that a family takes picture by picture; 0: all that the row names, 64 of a file
  double fps = 0;          // frames a second, where a video does not say it; 0: 2
  // Of a film as a file: how many frames are taken.
  int64_t fps_min_frames = 0, fps_max_frames = 0;  // where so many a second are; 0: 4, 768
  int64_t num_frames = 0;                          // whatever its length; 0: so many a second
  int64_t video_segments = 0;                      // the middle frame of each is taken; 0: 8
  std::string program_path = kUsualSearchPath;     // where ffmpeg and ffprobe are looked for: PATH
  bool plain_boxes = false;                        // boxes of grounding as plain lists: QWENVL_BBOX_FORMAT=new
  BoxUnit box_unit = BoxUnit::kOfFamily;           // what they are counted in: --norm_bbox
  int64_t sampling_rate = 0;    // samples a second that sound is brought to; 0: as the checkpoint has it
  bool audio_in_video = false;  // a clip beside a list of frames is its sound, and a film's file has its own
};

/// Which tokens of a conversation are learnt: ms-swift's --loss_scale, as far as it is a choice of tokens.
struct Taught {
  /// kLastRound: behind the last question; kLastAnswer: not what was called in between; kAll: all but media.
  enum class Of : uint8_t { kAnswers, kLastRound, kLastAnswer, kAll };
  Of of = Of::kAnswers;
  bool of_the_end() const { return of == Of::kLastRound || of == Of::kLastAnswer; }
  bool empty_thinking = true;  // "<think>\n\n</think>\n\n" at the beginning of an answer

  /// "default", "last_round", "last_answer", "all", "ignore_empty_think", or two of them with a plus. Throws UserError(kUsage).
  static Taught from_flag(const std::string& words);
};

struct ProcessOptions {
  int64_t max_length = 0;  // tokens; 0: as many as max_positions
  Truncation truncation = Truncation::kDelete;
  MediaOptions media = {};
  Taught taught = {};
  std::string system = {};        // of rows that have no system message; empty: none is put there
  bool use_chat_template = true;  // false: texts stand one behind the other, and an end-of-sequence token behind them
  bool ends_texts = false;  // behind a text alone stands what the tokenizer puts there: a vector is made of that token
  bool speaks = false;      // what rows are to say is learnt; else it is not looked at
  int64_t max_positions = 0;  // that the model was made for; 0: no limit

  int64_t most_tokens() const { return max_length > 0 ? max_length : max_positions; }  // 0: no limit
  std::string limit_text() const {                                                     // "--max_length is 512"
    return max_length > 0 ? "--max_length is " + std::to_string(max_length)
                          : "the model was made for " + std::to_string(max_positions);
  }
};

/// Immutable and thread-safe: the loader calls it from several threads.
class Processor {
 public:
  virtual ~Processor() = default;

  /// Whole conversation with labels, for training and for loss. Throws UserError(kData) naming the row.
  virtual Features train_features(const Sample& sample, const ProcessOptions& options) const = 0;

  /// Everything up to the last assistant message (or all, when the last turn is the user's) + generation prompt; of a text alone
  /// the text as it stands.
  virtual Features prompt_features(const Sample& sample, const ProcessOptions& options) const = 0;

  /// Throws UserError(kCheckpoint) where there is no chat template.
  virtual void require_chat_template() const {}

  virtual const Tokenizer& tokenizer() const = 0;
  virtual std::vector<int32_t> stop_tokens() const = 0;
  virtual int32_t pad_token() const = 0;
  /// Of a model that talks, else nullptr.
  virtual const SpeechRules* speech() const { return nullptr; }
};

/// Whether it is a text that nobody asked for: it is learnt as an answer, and what a model sees of it before it answers is all of it.
bool is_text_alone(const Sample& sample);

/// The response that a row expects: the assistant's message at its end, or "" where it ends with a question or is a text alone.
std::string expected_response(const Sample& sample);

}  // namespace lockstep
