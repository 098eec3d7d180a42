#include "lockstep/metric/multiple_choice.h"

#include <algorithm>
#include <array>
#include <string>

#include "lockstep/metric/characters.h"

namespace lockstep {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
constexpr std::string_view kPadding = " \t\n*";          // between a word and its letter
constexpr std::string_view kOpening = " \t\n*([{\"'`$";  // before a letter

char capital(char c) { return is_capital(c) ? c : static_cast<char>(c - 'a' + 'A'); }
/// Bytes above ASCII are letters of other scripts, which a choice may touch ("选B吧").
bool is_word_byte(char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '\''; }

/// Takes any of the given characters, in any number, from the front.
void skip(std::string_view& text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// A letter that begins the text and touches no other, brackets and stars before it skipped.
std::optional<char> leading_choice(std::string_view text) {
  skip(text, kOpening);
  if (text.empty() || !is_letter(text[0]) || (text.size() > 1 && is_word_byte(text[1]))) return std::nullopt;
  return capital(text[0]);
}

/// The letter behind an announcing word; `rest` is what follows the word.
std::optional<char> letter_after(std::string_view rest) {
  skip(rest, kPadding);
  for (const std::string_view link : {"is", ":", "是", "为", "择", "项", "："}) {
    std::string_view after = rest;
    if (!take(after, link) || (link == "is" && !after.empty() && is_word_byte(after[0]))) continue;
    rest = after;
    skip(rest, kPadding);
  }
  const bool bare = !rest.empty() && is_letter(rest[0]);
  const auto letter = leading_choice(rest);
  // "The answer is a dog": an article, not a choice.
  const bool article = bare && !is_capital(rest[0]) && rest.size() > 2 && rest[1] == ' ' && is_letter(rest[2]);
  return article ? std::nullopt : letter;
}

std::optional<char> announced(std::string_view answer) {
  constexpr std::array<std::string_view, 5> kWords = {"answer", "option", "choice", "答案", "选"};
  std::string lower(answer);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; });
  std::optional<char> found;
  size_t found_at = 0;
  for (const auto word : kWords) {
    for (size_t at = lower.find(word); at != std::string::npos; at = lower.find(word, at + 1)) {
      const std::string_view rest = answer.substr(at + word.size());
      const bool part_of_word = is_letter(word[0]) && !rest.empty() && is_word_byte(rest[0]);
      if (part_of_word || at < found_at) continue;
      if (const auto letter = letter_after(rest)) {
        found = letter;
        found_at = at;
      }
    }
  }
  return found;
}

std::optional<char> in_front(std::string_view answer) {
  const bool bracket = !answer.empty() && (answer[0] == '(' || answer[0] == '[');
  const auto letter = leading_choice(answer);
  if (!letter) return std::nullopt;
  skip(answer, kOpening);
  if (!bracket && !is_capital(answer[0])) return std::nullopt;
  answer.remove_prefix(1);
  constexpr std::string_view kMarks = ".):]},\n*";
  const bool marked = !answer.empty() && kMarks.find(answer[0]) != std::string_view::npos;
  return marked || answer.starts_with("：") || answer.starts_with("、") || answer.starts_with("．") ? letter
                                                                                                    : std::nullopt;
}

/// "A" and "I" before a lower-case word that does not join choices: "A cat", "I think"; not "A is right", "A or B".
bool is_english_word(std::string_view answer, size_t at) {
  if (answer[at] != 'A' && answer[at] != 'I') return false;
  std::string_view next = answer.substr(at + 1);
  if (next.size() < 2 || next[0] != ' ' || next[1] < 'a' || next[1] > 'z') return false;
  next.remove_prefix(1);
  const std::string_view word = next.substr(0, next.find(' '));
  return word != "is" && word != "or" && word != "and";
}

std::optional<char> only_capital(std::string_view answer) {
  std::optional<char> found;
  for (size_t i = 0; i < answer.size(); ++i) {
    const bool alone = is_capital(answer[i]) && (i == 0 || !is_word_byte(answer[i - 1])) &&
                       (i + 1 == answer.size() || !is_word_byte(answer[i + 1]));
    if (!alone) continue;
    if (is_english_word(answer, i)) continue;
    if (found && *found != answer[i]) return std::nullopt;
    found = answer[i];
  }
  return found;
}

}  // namespace

std::optional<char> choice_alone(std::string_view text) {
  const std::string whole = trimmed(text);
  std::string_view rest = whole;
  skip(rest, kOpening);
  if (rest.empty() || !is_letter(rest[0])) return std::nullopt;
  const char letter = capital(rest[0]);
  rest.remove_prefix(1);
  skip(rest, "*)]}\"'`$.:,; ");
  return rest.empty() ? std::optional(letter) : std::nullopt;
}

std::optional<char> choice_in_answer(std::string_view answer) {
  const std::string whole = trimmed(answer);
  if (const auto letter = choice_alone(whole)) return letter;
  if (const auto letter = choice_alone(whole.substr(0, whole.find('\n')))) return letter;
  if (const auto letter = announced(whole)) return letter;
  if (const auto letter = in_front(whole)) return letter;
  return only_capital(whole);
}

double multiple_choice(std::string_view answer, const References& references) {
  const auto mine = choice_in_answer(answer);
  if (!mine) return 0;
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) { return choice_alone(reference) == mine; })
             ? 1.0
             : 0.0;
}

}  // namespace lockstep
