#include "lockstep/base/modality.h"

#include <array>

#include "lockstep/base/error.h"

namespace lockstep {

std::string_view modality_name(Modality modality) {
  constexpr std::array kNames{"text", "image", "video", "audio", "speech"};
  static_assert(kNames.size() == static_cast<size_t>(Modality::kEnd), "every modality has a name");
  const auto at = static_cast<size_t>(modality);
  check(at < kNames.size(), "a modality");
  return kNames[at];
}

std::string Modalities::names() const {
  std::string all;
  for (int i = 0; i < static_cast<int>(Modality::kEnd); ++i) {
    const auto modality = static_cast<Modality>(i);
    if (!has(modality)) continue;
    if (!all.empty()) all += ", ";
    all += modality_name(modality);
  }
  return all;
}

}  // namespace lockstep
