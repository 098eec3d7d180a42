#include "lockstep/text/tokenizer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/text/regex.h"
#include "lockstep/text/settings_tokens.h"
#include "lockstep/text/tokenizer_impl.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

using Steps = std::variant<JsonSteps, PieceSteps>;

Steps read_steps(const TokenizerFolder& folder) {
  if (has_piece_model(folder)) return Steps(std::in_place_type<PieceSteps>, folder);
  return Steps(std::in_place_type<JsonSteps>, read_tokenizer_file(folder));
}

}  // namespace

Tokenizer::Impl::Impl(const TokenizerFolder& folder) : steps(read_steps(folder)) {
  if (const auto* const pieces = std::get_if<PieceSteps>(&steps)) {
    named = pieces->tokens().named;
    return;
  }
  named = named_tokens(folder);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const TokenizerFolder& folder) { return Tokenizer(std::make_unique<Impl>(folder)); }

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = repair_utf8(text);
  RegexBudget budget(text.size());
  return std::visit([&](const auto& steps) { return steps.encode(text, options); }, impl_->steps);
}

const TextFrame& Tokenizer::frame() const {
  return std::visit([](const auto& steps) -> const TextFrame& { return steps.frame(); }, impl_->steps);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return std::visit([&](const auto& steps) { return steps.decode(ids, skip_special_tokens); }, impl_->steps);
}

int64_t Tokenizer::vocab_size() const {
  return std::visit([](const auto& steps) { return int64_t{steps.max_id()} + 1; }, impl_->steps);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  return std::visit([&](const auto& steps) { return steps.id_of(token); }, impl_->steps);
}

std::string Tokenizer::token_of(int32_t id) const {
  return std::visit([&](const auto& steps) { return steps.token_of(id); }, impl_->steps);
}

bool Tokenizer::is_special(int32_t id) const {
  return std::visit([&](const auto& steps) { return steps.is_special(steps.token_of(id)); }, impl_->steps);
}

const NamedTokens& Tokenizer::named() const { return impl_->named; }

std::optional<std::string> Tokenizer::special(std::string_view name) const {
  const auto found = impl_->named.find(name);
  return found == impl_->named.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep
