#include "lockstep/session/row_options.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

const char* word_of(Truncation truncation) {
  switch (truncation) {
    case Truncation::kRight:
      return "right";
    case Truncation::kLeft:
      return "left";
    case Truncation::kTurns:
      return "turns";
    case Truncation::kSplit:
      return "split";
    case Truncation::kDelete:
      break;
  }
  return "delete";
}

}  // namespace

DatasetOptions RowOptions::dataset() const {
  return {.strict = strict,
          .root_image_dir = root_image_dir,
          .draws = draws_rows,
          .seed = data_seed,
          .max_samples = max_samples,
          .infos = infos,
          .dataset_dir = dataset_dir,
          .columns = columns};
}

ProcessOptions RowOptions::process() const {
  return {.max_length = max_length,
          .truncation = truncation,
          .media = media,
          .taught = taught,
          .system = system,
          .speaks = speaks};
}

LoaderOptions RowOptions::loader(const Job& job, const RunOptions& run, int64_t batch_size) const {
  return {.batch_size = batch_size,
          .rank = job.world.rank,
          .world = job.world.size,
          .seed = seed,
          .shuffle = false,
          .strict = strict,
          .num_workers = num_workers,
          .patience_s = run.data_patience_s(),
          .process = process()};
}

Json RowOptions::as_json() const {
  Json json = {{"strict", strict},
               {"max_length", max_length},
               {"truncation_strategy", word_of(truncation)},
               {"seed", seed},
               {"pixels",
                {media.shrink_to_pixels, media.min_pixels, media.max_pixels, media.video_min_pixels,
                 media.video_max_pixels, media.video_total_pixels}},
               {"taught", {static_cast<int>(taught.of), taught.empty_thinking}},
               {"system", system},
               {"tile_size", media.tile_size},
               {"tiles", {media.max_tiles, media.video_max_tiles, media.max_frames}},
               {"slices", {media.max_slices, media.video_max_slices}},
               {"fps", media.fps},
               {"frames", {media.fps_min_frames, media.fps_max_frames, media.num_frames, media.video_segments}},
               {"boxes", {media.plain_boxes, static_cast<int>(media.box_unit)}},
               {"sound", {media.sampling_rate, media.audio_in_video}}};
  if (media.as_llama_factory) json["as_llama_factory"] = true;  // older runs do not say it
  return json;
}

}  // namespace lockstep
