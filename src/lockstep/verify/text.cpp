#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/verify/parts.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::vector<Json> read_rows(const fs::path& path) {
  std::vector<Json> rows;
  for (const auto& line : split(read_text(path), '\n')) {
    if (!line.empty()) rows.push_back(parse_json(line, fmt::format("{} row {}", path.string(), rows.size() + 1)));
  }
  return rows;
}

/// Counts the rows for which `same` does not hold and remembers the first.
void count_rows(const std::string& name, const std::string& what, const std::vector<Json>& rows,
                const std::function<bool(const Json&)>& same, VerifyReport& report) {
  int64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (same(rows[i])) continue;
    if (wrong++ == 0) first = fmt::format(", the first in row {}", i + 1);
  }
  if (rows.empty()) {
    report.fails(name, what, "no rows");
    return;
  }
  report.measured(name, what, static_cast<double>(wrong), 0, fmt::format("{} rows{}", rows.size(), first));
}

bool renders(const ChatTemplate& chat, const Json& row, const RenderOptions& base) {
  RenderOptions options = base;
  options.add_generation_prompt = row.value("add_generation_prompt", false);
  const Json tools = row.value("tools", Json());
  if (!tools.is_null()) options.tools = &tools;
  try {
    const std::string text = chat.render(row["messages"], options);
    return row["text"].is_string() && text == row["text"].get<std::string>();
  } catch (const UserError&) {
    return row["text"].is_null();
  }
}

bool is_built(const std::string& family) {
  for (const auto& one : families()) {
    if (one.name == family) return true;
  }
  return false;
}

}  // namespace

void verify_tokenizer(const fs::path& folder, VerifyReport& report) {
  const std::string name = folder.filename().string();
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const auto ids_of = [](const Json& row) { return row["ids"].get<std::vector<int32_t>>(); };
  const std::vector<Json> fuzz = read_rows(folder / "fuzz.jsonl");
  count_rows(
      name, "fuzz ids", fuzz,
      [&](const Json& row) { return tokenizer.encode(row["text"].get<std::string>()) == ids_of(row); }, report);
  std::vector<int32_t> prefix;
  const fs::path summary = folder.parent_path() / "summary.json";
  if (fs::exists(summary)) {
    const Json all = read_json(summary);
    if (all.contains(name)) prefix = all[name]["ids_prepended_with_add_special_tokens"].get<std::vector<int32_t>>();
    count_rows(
        name, "fuzz ids with special tokens", fuzz,
        [&](const Json& row) {
          std::vector<int32_t> expected = prefix;
          for (const int32_t id : ids_of(row)) expected.push_back(id);
          return tokenizer.encode(row["text"].get<std::string>(), {.add_special_tokens = true}) == expected;
        },
        report);
  }
  const auto decodes = [&](const Json& row) {
    const auto ids = ids_of(row);
    return tokenizer.decode(ids) == row["decoded"].get<std::string>() &&
           tokenizer.decode(ids, true) == row.value("decoded_skip", row["decoded"].get<std::string>());
  };
  count_rows(name, "fuzz decoded", fuzz, decodes, report);
  if (fs::exists(folder / "decode.jsonl")) {
    const std::vector<Json> random = read_rows(folder / "decode.jsonl");
    count_rows(name, "random ids decoded", random, decodes, report);
    count_rows(
        name, "random ids streamed", random,
        [&](const Json& row) {
          StreamDecoder stream(tokenizer, false);
          std::string text;
          for (const int32_t id : ids_of(row)) text += stream.push(id);
          return text + stream.finish() == row["decoded"].get<std::string>();
        },
        report);
  }
}

void verify_chat_templates(const fs::path& folder, VerifyReport& report) {
  // What a renderer is told besides the conversation: the rows do not carry it.
  const std::map<std::string, std::string> bos{{"llama", "<|begin_of_text|>"}, {"llava", "<s>"}};
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    const std::string family = path.stem().string();
    const fs::path source = folder / (family + ".jinja");
    const std::vector<Json> all = read_rows(path);
    if (!is_built(family) || !fs::exists(source)) {
      report.not_built(family, fmt::format("{} conversations", all.size()), "");
      continue;
    }
    const ChatTemplate chat(read_text(source), source.string());
    RenderOptions options;
    if (bos.contains(family)) options.bos_token = bos.at(family);
    std::vector<Json> rows;
    for (const auto& row : all) {  // rows without text that no template saw: their content is of another modality
      if (row["text"].is_string() || !row.value("error", std::string()).starts_with("modality")) rows.push_back(row);
    }
    count_rows(
        family, "rendered conversations", rows, [&](const Json& row) { return renders(chat, row, options); }, report);
    if (rows.size() < all.size()) {
      report.not_compared(family, fmt::format("{} conversations", all.size() - rows.size()),
                          "of a modality that this template does not take");
    }
  }
}

}  // namespace lockstep
