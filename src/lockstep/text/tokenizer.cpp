#include "lockstep/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/tokenizer_impl.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

const Json& part(const TokenizerFile& file, const std::string& key) {
  static const Json none;
  const auto found = file.rest->find(key);
  return found == file.rest->end() ? none : *found;
}

std::string place(const TokenizerFile& file, const std::string& key) { return file.path + ": " + key; }

// tokenizer_config.json goes before special_tokens_map.json; a token is a string or an object with "content".
void read_named(const std::filesystem::path& path, std::map<std::string, std::string, std::less<>>& named) {
  if (!std::filesystem::exists(path)) return;
  const Json config = read_json(path);
  for (const std::string name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string()) named.emplace(name, found->get<std::string>());
    if (found->is_object()) named.emplace(name, text_key(*found, "content", path.string() + ": " + name));
  }
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerFile file)
    : normalizer(part(file, "normalizer"), place(file, "normalizer")),
      pre_tokenizer(part(file, "pre_tokenizer"), place(file, "pre_tokenizer")),
      model(file, pre_tokenizer.byte_level()),
      post_processor(part(file, "post_processor"), place(file, "post_processor")),
      decoder(part(file, "decoder"), place(file, "decoder")),
      max_id(model.max_id()) {
  if (file.rest->contains("added_tokens")) {
    add_tokens(list_key(*file.rest, "added_tokens", file.path), place(file, "added_tokens"));
  }
  if (post_processor.max_id() > max_id) {
    throw checkpoint_error(fmt::format("{}: expected ids up to {} (the tokens that the file has), found {}",
                                       place(file, "post_processor"), max_id, post_processor.max_id()));
  }
}

// The id in the file is not read: as in Hugging Face, a word of the vocabulary keeps its id there and a new one gets
// the next free id.
void Tokenizer::Impl::add_tokens(const Json& entries, const std::string& where) {
  auto next_id = static_cast<int32_t>(model.num_tokens());
  for (const Json& entry : entries) {
    AddedToken token = read_added_token(entry, where);
    if (token.content.empty()) continue;
    const auto known = model.id_of(token.content);
    const auto added = added_ids.find(token.content);
    token.id = added != added_ids.end() ? added->second : known ? *known : next_id;
    next_id = std::max(next_id, token.id + 1);
    max_id = std::max(max_id, token.id);
    added_ids[token.content] = token.id;
    added_contents[token.id] = token.content;
    if (token.special) special_contents.insert(token.content);
    const std::string content = token.content;
    if (token.normalized) {
      normalized_finder.add(normalizer.apply(content), std::move(token));
    } else {
      raw_finder.add(content, std::move(token));
    }
  }
}

void Tokenizer::Impl::encode_span(std::string_view text, bool at_start, bool continues,
                                  std::vector<int32_t>& out) const {
  const std::string normal =
      normalizer.empty() ? std::string() : normalizer.apply(std::string(text), !(continues && at_start));
  if (!normalizer.empty()) text = normal;
  for (const TokenSpan& span : normalized_finder.cut(text)) {
    if (span.id >= 0) {
      out.push_back(span.id);
      continue;
    }
    Pieces pieces;
    pieces.continues = continues;
    pieces.list.push_back({text.substr(span.begin, span.end - span.begin), at_start && span.begin == 0});
    pre_tokenizer.apply(pieces);
    for (const Piece& piece : pieces.list) model.tokenize(piece.text, out);
  }
}

std::vector<std::string> Tokenizer::Impl::tokens(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto added = added_contents.find(id);
    const std::string& token = added != added_contents.end() ? added->second : model.token_of(id);
    if (!token.empty() && !(skip_special_tokens && special_contents.contains(token))) out.push_back(token);
  }
  return out;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& dir) {
  auto impl = std::make_unique<Impl>(read_tokenizer_file(dir));
  read_named(dir / "tokenizer_config.json", impl->named);
  read_named(dir / "special_tokens_map.json", impl->named);
  return Tokenizer(std::move(impl));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = repair_utf8(text);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  for (const TokenSpan& span : impl_->raw_finder.cut(text)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
    } else {
      impl_->encode_span(text.substr(span.begin, span.end - span.begin), span.begin == 0, options.continues, ids);
    }
  }
  return options.add_special_tokens ? impl_->post_processor.apply(std::move(ids)) : ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return impl_->decoder.decode(impl_->tokens(ids, skip_special_tokens));
}

int64_t Tokenizer::vocab_size() const { return int64_t{impl_->max_id} + 1; }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added_ids.find(std::string(token));
  return added != impl_->added_ids.end() ? std::optional(added->second) : impl_->model.id_of(token);
}

std::string Tokenizer::token_of(int32_t id) const {
  const auto added = impl_->added_contents.find(id);
  return added != impl_->added_contents.end() ? added->second : impl_->model.token_of(id);
}

bool Tokenizer::is_special(int32_t id) const { return impl_->special_contents.contains(token_of(id)); }

std::optional<std::string> Tokenizer::special(std::string_view name) const {
  const auto found = impl_->named.find(name);
  return found == impl_->named.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep
