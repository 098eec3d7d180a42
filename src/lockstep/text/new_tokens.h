// Special tokens that a tokenizer is given beside its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

/// The files of the tokenizer in `dir` that change when these become special tokens of it, as transformers' add_special_tokens
/// makes them: one that is a token already keeps its id, others get the next ones, in their order. Found in the text as they
/// stand: nothing around them is stripped. No file where all of them are its special tokens. Throws UserError(kUsage) for a
/// text that can be none; kCheckpoint as Tokenizer::load does.
NamedTexts files_with_tokens(const std::filesystem::path& dir, const std::vector<std::string>& tokens);

}  // namespace lockstep
