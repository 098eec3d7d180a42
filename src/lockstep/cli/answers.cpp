#include "lockstep/cli/answers.h"

#include <map>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::string last_question(const Sample& sample) {
  for (auto it = sample.messages.rbegin(); it != sample.messages.rend(); ++it) {
    if (it->role == "user") return it->content;
  }
  return {};
}

}  // namespace

GenerateOptions generate_options(const Session& session, int64_t batch_size, int64_t max_new_tokens) {
  GenerateOptions options{.max_new_tokens = max_new_tokens, .batch_size = batch_size};
  options.stop_tokens = session.processor().stop_tokens();
  options.collate = session.collate();
  return options;
}

AnswerFigures exact_answers(Session& session, const Dataset& dataset, const AnswerOptions& options) {
  Generator generator(session.model(), session.executor(), session.job().control(), session.plan().gathers());
  const auto prompt = [&](int64_t row) -> std::optional<Features> {
    try {
      return session.processor().prompt_features(dataset.sample(row), options.process);
    } catch (const UserError& error) {
      if (options.strict || error.code() != ExitCode::kData) throw;
      return std::nullopt;
    }
  };
  AnswerFigures figures;
  std::map<std::string, std::pair<int64_t, int64_t>> groups;  // exact, rows
  const auto answers = session.job().control().recorder().confessing(
      [&] { return generator.run(dataset.size(), prompt, options.generate); });
  for (const auto& answer : answers) {
    const Sample sample = dataset.sample(answer.row);
    const std::string expected = trimmed(expected_response(sample));
    if (expected.empty()) continue;
    const std::string predicted = trimmed(session.processor().tokenizer().decode(answer.tokens, true));
    const bool exact = predicted == expected;
    ++figures.rows;
    figures.exact += exact ? 1 : 0;
    auto& group = groups[sample.group];
    group.first += exact ? 1 : 0;
    ++group.second;
    if (static_cast<int64_t>(figures.samples.size()) >= options.show) continue;
    figures.samples.push_back({.prompt = last_question(sample),
                               .expected = expected,
                               .predicted = predicted,
                               .image_path = sample.images.empty() ? "" : sample.images[0],
                               .exact = exact});
  }
  figures.skipped = dataset.size() - static_cast<int64_t>(answers.size());
  for (const auto& [name, counts] : groups) {
    if (!name.empty())
      figures.groups.emplace_back(name, static_cast<double>(counts.first) / static_cast<double>(counts.second));
  }
  return figures;
}

}  // namespace lockstep
