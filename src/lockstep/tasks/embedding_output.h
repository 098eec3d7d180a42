// Embeddings as records of a journal, and as the files that a person gets. docs/embed.md has the formats.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/infer/embedder.h"
#include "lockstep/infer/row_journal.h"

namespace lockstep {

std::string record_of(const RowEmbedding& row);
std::string record_of(const SkippedRow& row);

struct EmbeddingCounts {
  int64_t rows = 0, failed = 0, tokens = 0, width = 0;
  std::string first_failure;  // where and why
};

struct EmbeddingFormat {
  bool as_safetensors = false;
  bool per_token = false;  // a row has a list of vectors, of one token too
};

/// Writes every row of the data set, in input order, once: embeddings.jsonl, or embeddings.safetensors and rows.jsonl.
/// Rows that could not be used have an "error". Each file is whole or not there. Throws UserError(kData) when the disk
/// is full.
EmbeddingCounts write_embeddings(const std::filesystem::path& dir, const Dataset& rows, const RowJournal& journal,
                                 const EmbeddingFormat& format);

}  // namespace lockstep
