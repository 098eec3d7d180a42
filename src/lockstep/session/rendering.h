// How rows are spelled to a model: what chat template, tokenizer and the processor's settings make of a fixed
// conversation, and of a fixed picture, film and clip. A checkpoint keeps it in its args.json, so that a model is not asked
// in another way than it was taught.
//
// Example:
//   const Rendering now = rendering_of(*processor);
//   require_same_rendering(folder, now, unread_media(model));      // nothing, where the folder says nothing
//   const std::string kept = with_rendering(args_json, now);
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/modality.h"
#include "lockstep/data/processor.h"

namespace lockstep {

/// One of the fixed rows. `figures` are compared with a tolerance, as processors round in their own ways; all else as it is.
struct RenderedRow {
  std::string shown;                 // as view_sample shows it to people
  std::string tokens;                // ids of the text: "15 7 203"
  std::string targets;               // how many of them are learnt, from which on: "5 from 17"; "" for prompts
  std::vector<std::string> media;    // "image [2, 3, 28, 28] fills 16", a block each
  std::vector<double> figures = {};  // mean and spread of the values of each block

  bool operator==(const RenderedRow&) const = default;
};

/// The rows that the processor takes, by what they try: "conversation", "system", "image", "video", "audio".
struct Rendering {
  std::map<std::string, RenderedRow> rows;

  std::string hash() const;  // 16 hex digits, of all but the figures; the same on any machine
  Json json() const;
  /// nullopt for what is not a rendering of this version.
  static std::optional<Rendering> from_json(const Json& json);
};

/// As the folder's files have it: no variable and no flag counts.
Rendering rendering_of(const Processor& processor);

/// What differs, for people; "" when nothing does. Rows of `unread` media are left out, and rows that are not in both
/// unless only `now` lacks them.
std::string difference(const Rendering& then, const Rendering& now, Modalities unread = {});

/// Compares with what args.json of the folder keeps, if anything. Throws UserError(kCheckpoint) that shows both.
void require_same_rendering(const std::filesystem::path& folder, const Rendering& now, Modalities unread);

/// args.json as a checkpoint keeps it. Text that is no JSON object stays as it is.
std::string with_rendering(const std::string& args_json, const Rendering& rendering);

}  // namespace lockstep
