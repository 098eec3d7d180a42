// Which frames of a film each family takes, as its authors' or ms-swift's code does.
#pragma once

#include <string>

#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// Frames that stand for a second: as the row says, else the person, else 2.
double asked_fps(const Video& row, const MediaOptions& options);

/// Qwen2.5-VL, Qwen2.5-Omni: so many frames a second (FPS, 2) within FPS_MIN_FRAMES (4) and FPS_MAX_FRAMES (768), or NFRAMES
/// of them; an even number, evenly spread from the first to the last. What a row says itself goes before. Throws
/// UserError(kData) where fewer than 2 frames remain. Source: qwen_vl_utils 0.0.14 smart_nframes, calculate_video_frame_range.
FilmChoice evenly_spread_frames(const VideoFacts& film, const Video& row, const MediaOptions& options,
                                const std::string& name);

/// InternVL: the film in VIDEO_SEGMENTS (8, or a row's nframes), of each the middle; a short film has frames twice.
/// Source: ms-swift 3.x load_video_internvl, OpenGVLab/InternVL's model card.
FilmChoice segment_middles(const VideoFacts& film, const Video& row, const MediaOptions& options,
                           const std::string& name);

/// MiniCPM: one frame a second; of more than MAX_NUM_FRAMES (64, or a row's max_frames) that many, evenly spread. Source: ms-swift 3.x
/// load_video_minicpmv_mplug_owl3, the released model card's encode_video.
FilmChoice frame_a_second(const VideoFacts& film, const Video& row, const MediaOptions& options,
                          const std::string& name);

/// Of `count` things at most `most`, each from the middle of its stretch; 0: all.
std::vector<size_t> evenly_chosen(size_t count, int64_t most);

}  // namespace lockstep
