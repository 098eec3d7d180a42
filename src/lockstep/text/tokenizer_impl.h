// What stands behind a Tokenizer, for tokenizer.cpp and stream_decoder.cpp: the steps of one of two kinds of files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <variant>

#include "lockstep/text/json_steps.h"
#include "lockstep/text/sentencepiece/piece_steps.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

struct Tokenizer::Impl {
  using Steps = std::variant<JsonSteps, PieceSteps>;
  explicit Impl(const TokenizerFolder& folder);

  Steps steps;
  std::map<std::string, std::string, std::less<>> named;  // "bos_token" -> "<s>"
};

}  // namespace lockstep
