// A model without some of its components: they hold no byte and their tensors stay in the checkpoint.
//
// Blocks hold no tensors, so a component that was declared and taken away again has cost nothing.
//
// Example:
//   Model model = family.build(config);
//   leave_out(model, {Component::kVision});     // LLaVA: the projector goes too, it reads the tower alone
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

/// What a person asks with.
inline constexpr std::string_view kNoBuild = "--no_build", kNoAudioOutput = "ENABLE_AUDIO_OUTPUT=0";

/// Those that have a block, in the order in which they are needed; what was left out is not among them.
std::vector<Component> components_of(const Model& model);
/// "llm, vision, projector".
std::string names_of(const std::vector<Component>& components, std::string_view separator = ", ");

/// Takes the blocks of `components` away, and of those that read nothing else; what was taken stands in
/// Model::left_out, its tensors in Model::unused. Throws UserError(kUsage) when the model has none of them, when
/// the language model is asked for or cannot run without one of them, or when a component that stays would compute what
/// nobody reads.
void leave_out(Model& model, const std::set<Component>& components, std::string_view by = kNoBuild);

/// Without what speaks, built or carried: kNoAudioOutput. A model that does not talk stays as it is.
void leave_out_speech(Model& model);

/// What rows may not hold since nobody would read it.
Modalities unread_media(const Model& model);

}  // namespace lockstep
