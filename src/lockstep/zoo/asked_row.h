// A row as it is asked: with what it says itself of its media, and with what a person says of all rows.
#pragma once

#include <optional>

#include "lockstep/data/processor.h"
#include "lockstep/zoo/chat_processor.h"

namespace lockstep {

/// What the row says of its pictures counts before what the person says of all. Throws UserError(kData): it says what the
/// family's pictures do not heed.
ProcessOptions options_of(const Sample& sample, ProcessOptions options, const MediaRules& rules);

/// The row with its films' sounds, where the person asks for it and the family takes both as one, the system message of rows
/// that have none, its boxes, and its tools where the template has no words for them.
/// nullopt: it stays as it is.
std::optional<Sample> asked_row(const Sample& given, const ProcessOptions& options, const ChatParts& parts);

}  // namespace lockstep
