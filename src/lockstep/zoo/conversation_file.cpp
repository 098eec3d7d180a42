#include "lockstep/zoo/conversation_file.h"

#include <cctype>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"  // read_text
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // the authors' has 15 KB

/// Of Python as far as it matters here: names, texts, and single characters.
struct PyToken {
  enum class Kind { kName, kText, kOther } kind = Kind::kOther;
  std::string text;
  bool plain = false;  // of a text: its value is known
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class PyLexer {
 public:
  explicit PyLexer(std::string_view source) : source_(source) {}

  std::vector<PyToken> run() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '#') {
        skip_line();
      } else if (c == '\'' || c == '"') {
        // Behind a letter it is raw, bytes or formatted, which no message is.
        tokens_.push_back(text_from(at_ == 0 || !is_word(source_[at_ - 1])));
      } else if (is_word(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && is_word(source_[at_])) ++at_;
        tokens_.push_back({PyToken::Kind::kName, std::string(source_.substr(begin, at_ - begin))});
      } else {
        if (std::isspace(static_cast<unsigned char>(c)) == 0) tokens_.push_back({PyToken::Kind::kOther, {c}});
        ++at_;
      }
    }
    return std::move(tokens_);
  }

 private:
  void skip_line() {
    while (at_ < source_.size() && source_[at_] != '\n') ++at_;
  }

  PyToken text_from(bool plain) {
    const char quote = source_[at_];
    const std::string three(3, quote);
    const std::string_view end =
        source_.substr(at_).starts_with(three) ? std::string_view(three) : source_.substr(at_, 1);
    PyToken token{PyToken::Kind::kText, "", plain};
    for (at_ += end.size(); at_ < source_.size() && !source_.substr(at_).starts_with(end);) {
      if (end.size() == 1 && source_[at_] == '\n') break;  // no Python
      if (source_[at_] != '\\') {
        token.text += source_[at_++];
        continue;
      }
      token.plain = add_escaped(token.text, at_ + 1 < source_.size() ? source_[at_ + 1] : '\0') && token.plain;
      at_ += 2;
    }
    token.plain = token.plain && at_ < source_.size() && source_[at_] == quote;
    at_ += end.size();
    return token;
  }

  /// False: an escape that no message has, whose value stays unknown.
  static bool add_escaped(std::string& text, char c) {
    static constexpr std::string_view kFrom = "nt\\'\"", kTo = "\n\t\\'\"";
    const size_t found = kFrom.find(c);
    if (found != std::string_view::npos) text += kTo[found];
    return found != std::string_view::npos;
  }

  std::string_view source_;
  size_t at_ = 0;
  std::vector<PyToken> tokens_;
};

/// The arguments of a call that opens at `open`: those that are one plain text alone, by name.
struct Arguments {
  std::string name;
  std::optional<std::string> system_message;
};

Arguments arguments_of(const std::vector<PyToken>& tokens, size_t open) {
  Arguments found;
  int depth = 0;
  const auto is = [&](size_t i, std::string_view other) {
    return i < tokens.size() && tokens[i].kind == PyToken::Kind::kOther && tokens[i].text == other;
  };
  for (size_t i = open; i < tokens.size(); ++i) {
    if (is(i, "(") || is(i, "[") || is(i, "{")) ++depth;
    if (is(i, ")") || is(i, "]") || is(i, "}")) --depth;
    if (depth == 0) break;
    if (depth != 1 || tokens[i].kind != PyToken::Kind::kName || !is(i + 1, "=")) continue;
    const bool alone = is(i + 3, ",") || is(i + 3, ")");
    if (!alone || tokens[i + 2].kind != PyToken::Kind::kText || !tokens[i + 2].plain) continue;
    if (tokens[i].text == "name") found.name = tokens[i + 2].text;
    if (tokens[i].text == "system_message") found.system_message = tokens[i + 2].text;
  }
  return found;
}

std::string text_of_file(const std::filesystem::path& file) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure)) return "";
  try {
    return read_text(file, kMostBytes);
  } catch (const Error&) {
    return "";  // too large to be one
  }
}

}  // namespace

std::optional<std::string> system_message_in(const std::filesystem::path& file, const std::string& name) {
  const std::string source = text_of_file(file);
  if (!is_valid_utf8(source)) return std::nullopt;
  const std::vector<PyToken> tokens = PyLexer(source).run();
  static constexpr std::string_view kCall[] = {"register_conv_template", "(", "Conversation", "("};
  for (size_t i = 0; i + std::size(kCall) <= tokens.size(); ++i) {
    size_t same = 0;
    while (same < std::size(kCall) && tokens[i + same].kind != PyToken::Kind::kText &&
           tokens[i + same].text == kCall[same])
      ++same;
    if (same < std::size(kCall)) continue;
    const Arguments call = arguments_of(tokens, i + same - 1);
    if (call.name != name) continue;
    // A template of chats is made of it, to which braces mean something.
    const bool usable = call.system_message && call.system_message->find_first_of("{}") == std::string::npos;
    return usable ? call.system_message : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep
