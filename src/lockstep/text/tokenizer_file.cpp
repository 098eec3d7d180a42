#include "lockstep/text/tokenizer_file.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/legacy_tokenizer.h"
#include "lockstep/text/settings_tokens.h"

namespace lockstep {
namespace {

// Receives parse events; model.vocab and model.merges go to the tables, everything else into a Json value.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(TokenizerFile& out) : out_(out) {}

  bool null() override { return value(Json(nullptr)); }
  bool boolean(bool v) override { return value(Json(v)); }
  bool number_integer(number_integer_t v) override { return number(v); }
  bool number_unsigned(number_unsigned_t v) override { return number(static_cast<int64_t>(v)); }
  bool number_float(number_float_t v, const string_t&) override { return value(Json(v)); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& v) override {
    if (table_ != Table::kMerges) return value(Json(std::move(v)));
    if (table_depth_ == 2) {
      pair_.push_back(std::move(v));
      return true;
    }
    return split_merge(v);
  }
  bool key(string_t& v) override {
    key_ = std::move(v);
    return true;
  }
  bool start_object(std::size_t) override {
    if (!budget_.enter()) return too_costly();
    if (table_ != Table::kNone) return refuse("an object");
    if (open_.size() == 1 && key_ == "model") in_model_ = true;
    if (open_.size() == 2 && in_model_ && key_ == "vocab") {
      table_ = Table::kVocab;
      return true;
    }
    return open(Json::object());
  }
  bool end_object() override {
    budget_.leave();
    if (table_ == Table::kVocab) {
      table_ = Table::kNone;
      return true;
    }
    if (open_.size() == 2) in_model_ = false;
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    if (!budget_.enter()) return too_costly();
    if (table_ == Table::kVocab) return refuse("a list");
    if (table_ == Table::kMerges) {
      ++table_depth_;
      pair_.clear();
      return table_depth_ == 2 || refuse("a list in a list");
    }
    if (open_.size() == 2 && in_model_ && key_ == "merges") {
      table_ = Table::kMerges;
      table_depth_ = 1;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() override {
    budget_.leave();
    if (table_ != Table::kMerges) {
      open_.pop_back();
      return true;
    }
    if (--table_depth_ == 0) {
      table_ = Table::kNone;
      return true;
    }
    if (pair_.size() != 2) return refuse(fmt::format("a list of {}", pair_.size()));
    out_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    error_ = fmt::format("byte {}: {}", position, cut_text(e.what()));
    return false;
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  enum class Table { kNone, kVocab, kMerges };

  bool refuse(std::string_view found) {
    error_ =
        table_ == Table::kVocab
            ? fmt::format("model.vocab: \"{}\": expected a number (a BPE vocabulary), found {}", cut_text(key_), found)
            : fmt::format("model.merges: entry {}: expected \"a b\" or [\"a\", \"b\"], found {}", out_.merges.size(),
                          found);
    return false;
  }
  bool split_merge(const std::string& merge) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos)
      return refuse('"' + cut_text(merge) + '"');
    out_.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    return true;
  }
  bool number(int64_t v) {
    if (table_ == Table::kMerges) return refuse("a number");
    if (table_ == Table::kNone) return value(Json(v));
    if (v < 0 || v > INT32_MAX) return refuse(fmt::format("{}", v));
    out_.vocab.emplace_back(std::move(key_), static_cast<int32_t>(v));
    return true;
  }
  bool too_costly() {
    error_ = budget_.why();
    return false;
  }
  bool value(Json v) {
    if (table_ != Table::kNone) return refuse(v.type_name());
    if (open_.size() == 2 && in_model_ && key_ == "merges") {
      error_ = fmt::format("model.merges: expected a list, found {}", cut_text(v.dump()));
      return false;
    }
    if (!budget_.spend(2 * sizeof(Json::object_t::value_type))) return too_costly();
    return place(std::move(v)) != nullptr;
  }
  bool open(Json v) {
    Json* const placed = place(std::move(v));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }
  Json* place(Json v) {
    if (open_.empty()) return &(root_ = std::move(v));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    if (parent.size() == kMaxKeys) {  // every key is compared with all before it
      error_ = fmt::format("an object of more than {} keys that is no vocabulary", kMaxKeys);
      return nullptr;
    }
    return &(parent[key_] = std::move(v));
  }

  static constexpr size_t kMaxKeys = 4096;
  TokenizerFile& out_;
  JsonBudget budget_{JsonLimits{}};
  Json root_;
  std::vector<Json*> open_;  // the values being filled; a parent does not grow while its child is open
  std::string key_, error_;
  std::vector<std::string> pair_;
  bool in_model_ = false;
  Table table_ = Table::kNone;
  int table_depth_ = 0;
};

}  // namespace

TokenizerFile read_tokenizer_file(const TokenizerFolder& folder) {
  const char* const name = "tokenizer.json";
  TokenizerFile file;
  file.path = folder.path(name).string();
  if (!folder.has(name)) {
    if (is_legacy_qwen2(folder)) return read_legacy_qwen2(folder);
    throw checkpoint_error(
        fmt::format("{}: no such file", file.path),
        "supported: tokenizer.json or tokenizer.model of the BPE families, or vocab.json with merges.txt "
        "of Qwen2");
  }
  Reader reader(file);
  const std::string text = folder.text(name);
  if (!Json::sax_parse(text, &reader)) {
    throw checkpoint_error(fmt::format("{}: {}", file.path, reader.error()), "is the file complete?");
  }
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {  // where the library takes the text to end
    throw checkpoint_error(fmt::format("{}: not valid JSON (byte {} is zero)", file.path, zero),
                           "is the file complete?");
  }
  file.rest = std::make_unique<Json>(reader.take());
  if (!file.rest->is_object())
    throw checkpoint_error(fmt::format("{}: expected an object, found {}", file.path, file.rest->type_name()));
  add_tokens_of_settings(folder, file);
  return file;
}

}  // namespace lockstep
