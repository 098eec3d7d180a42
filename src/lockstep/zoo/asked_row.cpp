#include "lockstep/zoo/asked_row.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/zoo/box_text.h"
#include "lockstep/zoo/film_sounds.h"
#include "lockstep/zoo/tool_text.h"

namespace lockstep {

ProcessOptions options_of(const Sample& sample, ProcessOptions options, const MediaRules& rules) {
  MediaOptions& media = options.media;
  const auto films = rules.kinds.find(Modality::kVideo);
  const bool heeds = films != rules.kinds.end() && films->second.film.heeds_pixels;
  if (sample.min_pixels > 0 && !sample.images.empty() && !heeds) {
    throw data_error(
        fmt::format("{}: expected \"chat_template_kwargs\" without min_pixels, which this model's pictures "
                    "do not heed, found {}",
                    sample.where, sample.min_pixels),
        "leave it out of the row; max_pixels makes pictures smaller for any model");
  }
  if (sample.min_pixels > 0) media.min_pixels = sample.min_pixels;
  if (sample.max_pixels > 0) media.max_pixels = media.shrink_to_pixels = sample.max_pixels;
  return options;
}

std::optional<Sample> asked_row(const Sample& given, const ProcessOptions& options, const ChatParts& parts) {
  const auto films = parts.media.kinds.find(Modality::kVideo);
  const bool weaves = options.media.audio_in_video && films != parts.media.kinds.end() && films->second.takes_sound;
  const bool has_system = !given.messages.empty() && given.messages.front().role == "system";
  const bool instructs = !options.system.empty() && !has_system;
  if (!weaves && !instructs && given.objects.empty() && !has_tools(given))
    return std::nullopt;  // most rows: nothing is copied
  Sample sample = weaves ? with_film_sounds(given) : given;
  if (instructs) sample.messages.insert(sample.messages.begin(), {.role = "system", .content = options.system});
  fill_boxes(sample, parts.media.boxes, options.media);
  write_tools(sample, parts.chat);
  return sample;
}

}  // namespace lockstep
