// How a family takes media: a table by modality. What each kind is prepared as, and how it is spelled among the tokens.
//
// Example:
//   MediaRules rules;
//   rules.kinds[Modality::kImage] = {.placeholder = "<image>", .prepare = …, .spell = …};
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/modality.h"
#include "lockstep/data/audio.h"
#include "lockstep/data/features.h"
#include "lockstep/data/image.h"
#include "lockstep/data/processor.h"
#include "lockstep/data/video_facts.h"

namespace lockstep {

/// A medium of a row as its files hold it.
struct LoadedMedium {
  std::vector<Image> frames = {};  // one: a picture
  double fps = 0;                  // of a video
  bool of_file = false;            // a video that is a file: its frames have been through FilmRules::shrink
  Audio sound = {};                // of an audio, or that goes with a video
};

/// What stands for a medium: text that is read as any other, or a token as many times as a block fills.
struct MediaRun {
  std::string text = {};  // when not empty, nothing else counts
  int32_t token = -1;     // `count` times, filled by blocks[block]
  int64_t count = 0;
  size_t block = 0;
  bool apart =
      false;  // the texts on either side are read as texts of their own, not as one that goes on behind the medium
};

/// Which frames of a film are taken, rising, and how many of them stand for a second.
struct FilmChoice {
  std::vector<int64_t> frames;
  double fps = 0;
};

/// How a family takes a film from its file. A list of frames is taken as it is.
struct FilmRules {
  /// Empty: the family takes no files. `film.frames` is true. Throws UserError(kData), `name` (the film's) in it, for a film that is too short
  /// and for what a row asks of it that the family does not heed.
  std::function<FilmChoice(const VideoFacts& film, const Video& row, const MediaOptions& options,
                           const std::string& name)>
      choose = {};
  /// What becomes of a frame as soon as it is read, so that few large ones are held: the same as `prepare` would make of it.
  std::function<Image(Image frame, size_t frames, const MediaOptions& options, const std::string& where)> shrink = {};
  bool heeds_pixels = false;  // min_pixels, max_pixels and total_pixels of a row, of frames in a list too
  bool each_alone = false;    // `prepare` makes of many frames what it makes of each: it gets them one by one
};

struct MediumRules {
  std::string placeholder;  // what the chat template writes where one stands; never empty
  /// Blocks for the family's towers, in the order in which they are filled in. `where` names the row.
  std::function<std::vector<MediaBlock>(const LoadedMedium& medium, const MediaOptions& options,
                                        const std::string& where)>
      prepare;
  /// What takes the placeholder's place, from the blocks' shapes and facts alone. `index`: of the medium among those of
  /// its kind in the row.
  std::function<std::vector<MediaRun>(const std::vector<MediaBlock>& blocks, int64_t index)> spell;
  /// For templates that take a message as one text: a mark right before other text ends its line.
  bool ends_line = false;
  bool stretches_thin = false;  // of a picture or a frame, where LLaMA-Factory's way is taken (zoo/regularized_media.h)
  AudioLimits sound = {};       // how it is read, and how long one may be
  bool takes_sound = false;     // of a video: it is woven with its sound where the person asks for it
  FilmRules film = {};          // of a video that is a file
};

/// How a family writes what <ref-object> and <bbox> of a row stand for; by default as ms-swift does where it knows of none.
struct BoxRules {
  BoxUnit unit = BoxUnit::kThousandths;
  /// Edges of a picture as the tower sees it, which pixels are counted in; empty: as it is.
  std::function<std::array<int64_t, 2>(std::array<int64_t, 2> edges, const MediaOptions& options,
                                       const std::string& where)>
      resized = {};
  std::function<std::string(const std::string& ref, bool plain)> ref = {};               // empty: the text itself
  std::function<std::string(const std::vector<int64_t>& numbers, bool plain)> box = {};  // empty: [(x1,y1),(x2,y2)]
};

struct MediaRules {
  BoxRules boxes = {};
  std::map<Modality, MediumRules> kinds;          // of those that the family takes; empty: text alone
  std::function<void(Features& features)> place;  // sets positions; empty: tokens are counted
  /// For templates that take a message as one text: of media in front of it that its text does not mark, each ends its line.
  bool front_ends_lines = false;
  std::vector<std::string> reserved;  // what only a spelling may write: a row's own text with one is refused
};

/// One token for each feature: what most families do.
std::function<std::vector<MediaRun>(const std::vector<MediaBlock>&, int64_t)> filled_with(
    int32_t token, std::function<int64_t(const MediaBlock&)> num_tokens);

}  // namespace lockstep
