#include "lockstep/dialect/shell_script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// "NAME=value" or "NAME+=value" at the begin of a command; the length of the name, or 0.
size_t name_of_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || std::isdigit(static_cast<unsigned char>(word[0])) != 0) return 0;
  const size_t end = word[equals - 1] == '+' ? equals - 1 : equals;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), is_name) ? end : 0;
}

/// A sum of whole numbers, as $((…)) has it: + - * / % and brackets. nullopt: it is something else.
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  std::optional<int64_t> value() {
    const int64_t found = sum(0);
    skip();
    return fine_ && at_ == text_.size() ? std::optional(found) : std::nullopt;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 31;
  static constexpr int kDeepest = 32;

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  int64_t bounded(int64_t number) {
    fine_ = fine_ && number < kMost * kMost / 2 && number > -kMost * kMost / 2;
    return fine_ ? number : 0;
  }
  int64_t sum(int depth) {
    int64_t left = product(depth);
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      const int64_t right = product(depth);
      left = bounded(c == '+' ? left + right : left - right);
    }
    return left;
  }
  int64_t product(int depth) {
    int64_t left = factor(depth);
    for (char c = next(); c == '*' || c == '/' || c == '%'; c = next()) {
      ++at_;
      const int64_t right = factor(depth);
      fine_ = fine_ && (c != '*' || (std::abs(left) < kMost && std::abs(right) < kMost)) && (c == '*' || right != 0);
      if (!fine_) return 0;
      left = c == '*' ? left * right : c == '/' ? left / right : left % right;
    }
    return left;
  }
  int64_t factor(int depth) {
    const char c = next();
    if (c == '(' && depth < kDeepest) {
      ++at_;
      const int64_t inner = sum(depth + 1);
      fine_ = fine_ && next() == ')';
      ++at_;
      return inner;
    }
    int64_t number = 0;
    const size_t from = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 && number < kMost)
      number = number * 10 + (text_[at_++] - '0');
    fine_ = fine_ && at_ > from;
    return fine_ ? number : 0;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool fine_ = true;
};

/// Words behind which a command begins, those of programs that run it among them.
constexpr std::array<std::string_view, 13> kKeywords = {"then", "else", "do",  "fi",    "done", "esac", "{",
                                                        "}",    "!",    "env", "nohup", "time", "exec"};
constexpr std::array<std::string_view, 7> kBranches = {"if", "elif", "else", "case", "for", "while", "until"};

class Script {
 public:
  explicit Script(const std::string& text) : text_(text) {}

  std::vector<ShellCommand> commands() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size()) {
      if (text_[at_ + 1] == '\r') ++at_;
      if (text_[at_ + 1] != '\n') add(text_[at_ + 1]);
      at_ += 2;
    } else if (c == '\'' || c == '"') {
      quoted(c);
    } else if (c == '$') {
      variable(/*is_quoted=*/false);
    } else if (c == '(' && assigns() && word_.ends_with("=")) {
      begin_array();
    } else if (c == ')' && array_) {
      end_array();
    } else if (c == '\n' && array_) {
      end_word();
      ++at_;
    } else if (c == '#' && !in_word_) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '>' || c == '<' || (c == '&' && at_ + 1 < text_.size() && text_[at_ + 1] == '>')) {
      redirection();
    } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
      end_command();
      ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      end_word();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
  }

  void add(char c) {
    word_ += c;
    in_word_ = true;
  }

  void quoted(char quote) {
    if (text_.compare(at_, 4, "\"$@\"") == 0 || text_.compare(at_, 4, "\"$*\"") == 0)
      return void(at_ += 4);  // none were given
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote;) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        const char next = text_[at_ + 1];
        if (std::string_view("$`\"\\\n").find(next) == std::string_view::npos) word_ += '\\';  // it stands for itself
        if (next != '\n') word_ += next;
        at_ += 2;
      } else if (quote == '"' && text_[at_] == '$') {
        variable(/*is_quoted=*/true);
      } else {
        word_ += text_[at_++];
      }
    }
    ++at_;
  }

  /// "> log", "2>&1", "< rows": where the shell sends what is written, of which the command sees nothing.
  void redirection() {
    const bool is_number = std::ranges::all_of(word_, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (in_word_ && is_number) {
      word_.clear();
      in_word_ = false;
    }
    end_word();
    while (at_ < text_.size() && std::string_view("<>&|").find(text_[at_]) != std::string_view::npos) ++at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    char quote = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote == 0 && (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';' || c == '&' || c == '|')) return;
      if (quote == 0 && (c == '\'' || c == '"')) {
        quote = c;
      } else if (c == quote) {
        quote = 0;
      }
    }
  }

  /// Whether this word is what a variable is set to, which the shell does not split.
  bool assigns() const { return name_of_assignment(word_) > 0 && (words_.empty() || words_[0] == "export") && !array_; }

  /// What stands between brackets of two kinds, computed; the place behind it. nullopt: it is not computed here.
  std::optional<std::string> computed(size_t& end) {
    size_t depth = 0;
    for (end = at_; end < text_.size(); ++end) {
      if (text_[end] == '(') ++depth;
      if (text_[end] == ')' && --depth == 0) break;
    }
    end = std::min(end + 1, text_.size());
    std::string inner = text_.substr(at_, end - at_);
    if (!inner.starts_with("((") || !inner.ends_with("))")) return std::nullopt;
    inner = inner.substr(2, inner.size() - 4);
    std::string numbers;
    for (size_t i = 0; i < inner.size();) {
      if (inner[i] == '$' || inner[i] == '{' || inner[i] == '}') {
        ++i;
        continue;
      }
      std::string name;
      while (i < inner.size() && is_name(inner[i])) name += inner[i++];
      if (name.empty()) {
        numbers += inner[i++];
        continue;
      }
      const auto known = variables_.find(name);
      numbers += known == variables_.end() ? name : known->second;
      allow(name.size() + (known == variables_.end() ? 0 : known->second.size()));
    }
    const auto found = Arithmetic(numbers).value();
    return found ? std::optional(std::to_string(*found)) : std::nullopt;
  }

  /// A script that sets a variable to itself twice, again and again, would have no end.
  void allow(size_t bytes) {
    constexpr size_t kMost = size_t{16} << 20;
    inserted_ += bytes;
    if (inserted_ > kMost) throw data_error("a shell script: expected variables of 16 MiB in all at most, found more");
  }

  /// A variable's text: several words where it is not quoted.
  void insert(const std::string& value, bool is_quoted) {
    allow(value.size());
    if (is_quoted || assigns()) {
      in_word_ = true;
      word_ += value;
      return;
    }
    for (const char c : value) {
      std::isspace(static_cast<unsigned char>(c)) != 0 ? end_word() : add(c);
    }
  }

  /// "${NAME[@]}": a word for each.
  void insert_array(const std::vector<std::string>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      allow(values[i].size() + 1);
      if (i > 0) end_word();
      in_word_ = true;
      word_ += values[i];
    }
  }

  /// $NAME, ${NAME}, ${NAME:-otherwise}, ${NAME:=otherwise}, ${NAME[@]}, $((1 + 2)).
  void variable(bool is_quoted) {
    const size_t from = at_++;
    std::string name, otherwise;
    if (at_ < text_.size() && text_[at_] == '(') {
      size_t end = 0;
      const auto value = computed(end);
      in_word_ = true;
      word_ += value ? *value : text_.substr(from, end - from);
      at_ = end;
      return;
    }
    if (at_ < text_.size() && text_[at_] == '{') {
      const size_t end = at_ < no_bracket_from_ ? text_.find('}', at_) : std::string::npos;
      if (end == std::string::npos) {
        no_bracket_from_ = std::min(no_bracket_from_, at_);  // or each of many would be looked for to the end
        return add('$');
      }
      name = text_.substr(at_ + 1, end - at_ - 1);
      for (const char* mark : {":-", ":="}) {
        const size_t colon = name.find(mark);
        if (colon == std::string::npos) continue;
        otherwise = name.substr(colon + 2);
        name.resize(colon);
      }
      at_ = end + 1;
      if (name.ends_with("[@]") || name.ends_with("[*]")) {
        const auto array = arrays_.find(name.substr(0, name.size() - 3));
        if (array != arrays_.end()) return insert_array(array->second);
      }
    } else {
      if (at_ < text_.size() && (text_[at_] == '@' || text_[at_] == '*')) return void(++at_);  // none were given
      while (at_ < text_.size() && is_name(text_[at_])) name += text_[at_++];
    }
    const auto known = variables_.find(name);
    insert(known != variables_.end() ? known->second
           : !otherwise.empty()      ? otherwise
                                     : text_.substr(from, at_ - from),
           is_quoted);
  }

  void begin_array() {
    ++at_;
    array_ = std::exchange(word_, "");
    in_word_ = false;
    around_ = std::exchange(words_, {});
  }

  void end_array() {
    ++at_;
    end_word();
    const std::string name = array_->substr(0, name_of_assignment(*array_));
    std::vector<std::string>& to = arrays_[name];
    if (!array_->ends_with("+=")) to.clear();
    to.insert(to.end(), words_.begin(), words_.end());
    words_ = std::exchange(around_, {});
    array_.reset();
  }

  void end_word() {
    if (!in_word_) return;
    in_word_ = false;
    std::string word = std::exchange(word_, "");
    if (words_.empty() && !array_) {
      branches_ = branches_ || std::ranges::find(kBranches, word) != kBranches.end();
      if (std::ranges::find(kKeywords, word) != kKeywords.end()) return;
    }
    const size_t name = words_.empty() && !array_ ? name_of_assignment(word) : 0;
    if (name == 0) {
      words_.push_back(std::move(word));
    } else {
      const auto [title, value] = assigned(word, name);
      before_[title] = value;
    }
  }

  std::pair<std::string, std::string> assigned(const std::string& word, size_t name) {
    std::string title = word.substr(0, name), value = word.substr(word.find('=') + 1);
    const auto known = variables_.find(title);
    if (word[name] == '+' && known != variables_.end()) {
      allow(known->second.size());
      value = known->second + value;
    }
    return {std::move(title), std::move(value)};
  }

  void end_command() {
    end_word();
    std::vector<std::string> words = std::exchange(words_, {});
    std::map<std::string, std::string> before = std::exchange(before_, {});
    if (!words.empty() && words[0] == "export") {
      for (const auto& word : words) {
        if (const size_t name = name_of_assignment(word); name > 0) {
          const auto [title, value] = assigned(word, name);
          exported_[title] = value;
        }
      }
      for (const auto& [name, value] : exported_) variables_[name] = value;
    } else if (words.empty()) {
      for (const auto& [name, value] : before) variables_[name] = value;
    } else {
      before.insert(exported_.begin(), exported_.end());
      commands_.push_back({std::move(before), std::move(words), branches_});
    }
  }

  const std::string& text_;
  size_t at_ = 0, inserted_ = 0, no_bracket_from_ = std::string::npos;
  bool in_word_ = false;
  std::string word_;
  std::vector<std::string> words_;
  std::map<std::string, std::string> variables_, exported_, before_;
  std::map<std::string, std::vector<std::string>> arrays_;
  std::optional<std::string> array_;  // "NAME=" or "NAME+=" of the one that is being read, whose words come
  std::vector<std::string> around_;   // of the command that it stands in
  bool branches_ = false;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> shell_commands(const std::string& script) { return Script(script).commands(); }

}  // namespace lockstep
