// Flags of matrices as codes of few bits, in ms-swift's words: of every verb that runs a model, and of export.
#pragma once

#include <string>
#include <vector>

#include "lockstep/session/run_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct QuantFlags {
  QuantOptions given;
  std::string method, compute_dtype, storage;

  /// `compute`: what --torch_dtype says; "": nothing. Throws UserError(kUsage): a method that is not built, words that
  /// contradict each other.
  QuantOptions options(const std::string& compute) const;
};
void add_quant_flags(CLI::App& app, QuantFlags& flags);

}  // namespace lockstep
