// The files of a tokenizer: those of a folder, and texts that stand in the place of some of them.
//
// Example:
//   const TokenizerFolder files(dir, files_with_tokens(dir, {"<box>"}));   // text/new_tokens.h
//   const Tokenizer tokenizer = Tokenizer::load(files);
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// By name: "tokenizer_config.json" and what it holds.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

class TokenizerFolder {
 public:
  /// A path is the folder as it is.
  TokenizerFolder(std::filesystem::path dir, NamedTexts instead = {})  // NOLINT(google-explicit-constructor)
      : dir_(std::move(dir)), instead_(std::move(instead)) {}

  bool has(const std::string& name) const;
  std::filesystem::path path(const std::string& name) const { return dir_ / name; }  // for messages
  std::string text(const std::string& name) const;                                   // throws as read_text does
  Json json(const std::string& name) const;                                          // throws as read_json does

 private:
  const std::string* replaced(const std::string& name) const;

  std::filesystem::path dir_;
  NamedTexts instead_;
};

}  // namespace lockstep
