// Ways in which writers of adapters call the tensors of a model, beside its dialects.
#pragma once

#include <string>

#include "lockstep/model/dialect.h"

namespace lockstep {

/// The language model's names as a text model has them.
std::string text_name(const std::string& key);

/// Names in memory as transformers' class without a head (AutoModel) has them, over which models of embeddings are adapted.
Dialect without_head(Dialect dialect);

}  // namespace lockstep
