// A row's video, by a family's rules: frames that the row lists, or those that the family takes of a film's file.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/data/processor.h"
#include "lockstep/data/sample.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// Blocks for the family's towers. Of a film no more frames are held at a time than the family's rules need. Throws
/// UserError(kData) naming `where`, the row: what VideoFile throws, what the rules throw, a family that takes no files, and what
/// the row asks of a list of frames that the family does not heed.
std::vector<MediaBlock> prepared_video(const Video& video, const MediumRules& rules, const MediaOptions& options,
                                       const std::string& where);

}  // namespace lockstep
