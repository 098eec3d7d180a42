#include "lockstep/tasks/embedding_output.h"

#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kFailed = -1;  // in the place of the number of tokens

struct Record {
  int64_t tokens = 0, width = 0;
  std::vector<float> values;
  std::string why;
};

std::string packed(int64_t tokens, int64_t width, const void* payload, size_t bytes) {
  std::string record(2 * sizeof(int64_t) + bytes, '\0');
  std::memcpy(record.data(), &tokens, sizeof tokens);
  std::memcpy(record.data() + sizeof tokens, &width, sizeof width);
  std::memcpy(record.data() + 2 * sizeof tokens, payload, bytes);
  return record;
}

Record unpacked(const std::string& bytes) {
  Record record;
  check(bytes.size() >= 2 * sizeof(int64_t), "a record of an embedding");
  std::memcpy(&record.tokens, bytes.data(), sizeof(int64_t));
  std::memcpy(&record.width, bytes.data() + sizeof(int64_t), sizeof(int64_t));
  const char* payload = bytes.data() + 2 * sizeof(int64_t);
  const size_t size = bytes.size() - 2 * sizeof(int64_t);
  if (record.tokens == kFailed) {
    record.why.assign(payload, size);
  } else {
    record.values.resize(size / sizeof(float));
    std::memcpy(record.values.data(), payload, size);
  }
  return record;
}

/// The shortest digits that read back as the same float; what is not finite becomes null, as JSON has no word for it.
void append_numbers(std::string& line, std::span<const float> values) {
  line += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ',';
    if (std::isfinite(values[i])) {
      fmt::format_to(std::back_inserter(line), "{}", values[i]);
    } else {
      line += "null";
    }
  }
  line += ']';
}

void append_embedding(std::string& line, const Record& record, bool per_token) {
  line += ",\"embedding\":";
  const auto width = static_cast<size_t>(record.width);
  if (!per_token) {
    append_numbers(line, record.values);
    return;
  }
  line += '[';
  for (size_t at = 0; at < record.values.size(); at += width) {
    if (at > 0) line += ',';
    append_numbers(line, std::span(record.values).subspan(at, width));
  }
  line += ']';
}

/// Calls `each` for every row in file order: its head for a JSON line, open at the end, and its record.
class RowWalk {
 public:
  RowWalk(const Dataset& rows, const RowJournal& journal) : rows_(rows), journal_(journal) {}

  template <typename Each>
  EmbeddingCounts walk(const Each& each) const {
    EmbeddingCounts counts;
    const auto add = [&](const std::string& where, const std::string& id, Record record) {
      Json head{{"row", counts.rows++}, {"where", where}};
      if (!id.empty()) head["id"] = id;
      if (record.tokens == kFailed) {
        head["error"] = record.why;
        if (counts.failed++ == 0) counts.first_failure = record.why;
      } else {
        head["tokens"] = record.tokens;
        counts.tokens += record.tokens;
        counts.width = record.width;
      }
      std::string line = head.dump(-1, ' ', false, Json::error_handler_t::replace);
      line.pop_back();
      each(std::move(line), record);
    };
    rows_.in_file_order(
        [&](int64_t row) { add(rows_.where(row), rows_.sample_or_name(row).id, unpacked(journal_.read(row))); },
        [&](const BrokenRow& row) { add(row.where, "", {.tokens = kFailed, .why = row.where + ": " + row.why}); });
    return counts;
  }

 private:
  const Dataset& rows_;
  const RowJournal& journal_;
};

EmbeddingCounts write_jsonl(const fs::path& dir, const RowWalk& walk, bool per_token) {
  NewFile file(dir / "embeddings.jsonl", journal_keeps_rows());
  const auto counts = walk.walk([&](std::string line, const Record& record) {
    if (record.tokens != kFailed) append_embedding(line, record, per_token);
    file.line(line + '}');
  });
  file.finish();
  return counts;
}

/// "embeddings" [vectors, D] and "row" [rows with vectors]; of --stage inputs also "ends": where each row's vectors
/// end.
EmbeddingCounts write_safetensors(const fs::path& dir, const RowWalk& walk) {
  std::vector<int64_t> rows, ends;
  int64_t row = 0, vectors = 0;
  NewFile list(dir / "rows.jsonl", journal_keeps_rows());
  const auto counts = walk.walk([&](std::string line, const Record& record) {
    if (record.tokens != kFailed) {
      line += fmt::format(",\"index\":{}", rows.size());
      rows.push_back(row);
      vectors += static_cast<int64_t>(record.values.size()) / record.width;
      ends.push_back(vectors);
    }
    ++row;
    list.line(line + '}');
  });
  const auto count = static_cast<int64_t>(rows.size());
  SafetensorsWriter out(dir,
                        {{"embeddings", Dtype::kF32, {vectors, counts.width}},
                         {"row", Dtype::kI64, {count}},
                         {"ends", Dtype::kI64, {count}}},
                        {.max_shard_bytes = INT64_MAX, .stem = "embeddings"});
  if (count > 0) {
    out.write("row", from_values(std::span<const int64_t>(rows), {count}));
    out.write("ends", from_values(std::span<const int64_t>(ends), {count}));
  }
  int64_t at = 0;
  walk.walk([&](const std::string&, const Record& record) {
    if (record.tokens == kFailed) return;
    const auto size = static_cast<int64_t>(record.values.size());
    out.write_flat("embeddings", at, from_values(std::span<const float>(record.values), {size}));
    at += size;
  });
  out.finish();
  list.finish();
  return counts;
}

}  // namespace

std::string record_of(const RowEmbedding& row) {
  const auto size = static_cast<int64_t>(row.values.size());
  return packed(row.tokens, row.width, row.values.data(), static_cast<size_t>(size) * sizeof(float));
}

std::string record_of(const SkippedRow& row) { return packed(kFailed, 0, row.why.data(), row.why.size()); }

EmbeddingCounts write_embeddings(const fs::path& dir, const Dataset& rows, const RowJournal& journal,
                                 const EmbeddingFormat& format) {
  const RowWalk walk(rows, journal);
  return format.as_safetensors ? write_safetensors(dir, walk) : write_jsonl(dir, walk, format.per_token);
}

}  // namespace lockstep
