// Which clip of a row is the sound of which film, where a person asks for films with their sound (USE_AUDIO_IN_VIDEO).
#pragma once

#include "lockstep/data/sample.h"

namespace lockstep {

/// A film's file has its own sound. Of a list of frames, the clip whose mark stands right in front of its mark, else right behind it, becomes its sound
/// (Video::sound), and its mark goes. Other clips stay as they are, and so do films that have their sound already. Throws
/// UserError(kData) naming the row for a film without one.
Sample with_film_sounds(const Sample& sample);

}  // namespace lockstep
