#include "lockstep/tasks/answer_prompts.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/sample_row.h"
#include "lockstep/infer/dataset_prompts.h"
#include "lockstep/infer/generator.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

Json answer_row(const Sample& sample, const Json& record) {
  const auto response = record["response"].get<std::string>();
  Sample asked = sample;
  asked.references.clear();
  asked.speech.reset();
  asked.input_ids.clear();  // its answer is text
  const bool answered = !asked.messages.empty() && asked.messages.back().role == "assistant";
  const std::string before = is_text_alone(sample) ? sample.messages.back().content : "";  // a text that is continued
  if (answered) asked.messages.pop_back();
  asked.messages.push_back({.role = "assistant", .content = before + response});
  const std::string expected = expected_response(sample);
  Json row = {{"response", response}, {"labels", expected.empty() ? Json(nullptr) : Json(expected)}};
  row.update(sample_row(asked));
  for (const char* key : {"finish_reason", "speech"}) {
    if (record.contains(key)) row[key] = record[key];
  }
  return row;
}

Json failed_row(const std::string& where, const std::string& why) {
  return {{"response", nullptr}, {"where", where}, {"error", why}};
}

int64_t answer_slots(int64_t batch, const Dataset& rows) { return std::min(batch, std::max<int64_t>(1, rows.size())); }

void answer_prompts(Session& session, const AnswerFileOptions& options, int64_t slots, const Dataset& rows,
                    const std::vector<int64_t>& order, const KeepAnswer& keep) {
  Job& job = session.job();
  GenerateOptions generate =
      generate_options(session, slots, options.max_new_tokens, options.rows.max_length, options.sampling);
  std::optional<SpokenAnswers> spoken;
  if (options.speech) spoken.emplace(session, *options.speech, slots);
  const Tokenizer& tokenizer = session.processor().tokenizer();
  const auto record_of = [&](const Generated& answer) {
    Json record = {{"response", tokenizer.decode(answer.tokens, options.sampling.skip_special_tokens)},
                   {"tokens", answer.tokens.size()}};
    if (!answer.stopped) record["finish_reason"] = "length";
    return record;
  };
  Generator generator(session.model(), session.executor(), job.control(), session.plan().gathers());
  const auto chosen = [&](Prompt& prompt) {  // whether its adapter is there
    try {
      prompt.adapter = session.adapter_of(prompt.features.sample);
      return true;
    } catch (const UserError& error) {
      if (options.rows.strict) throw;
      keep(prompt.row, {{"error", error.what()}});
      return false;
    }
  };
  const auto answer_some = [&](const std::vector<int64_t>& some) {
    LoaderOptions loading = options.rows.loader(job, options.run, 1);
    loading.order = some;
    DatasetPrompts prompts(rows, session.processor(), loading, job.control().recorder());
    size_t told = 0;
    const auto next = [&]() -> std::optional<Prompt> {
      while (true) {
        auto prompt = prompts.next();
        for (; told < prompts.skipped().size(); ++told) {
          keep(prompts.skipped()[told].row, {{"error", prompts.skipped()[told].why}});
        }
        if (prompt && !chosen(*prompt)) continue;
        return spoken ? spoken->asking(std::move(prompt)) : std::move(prompt);
      }
    };
    generator.run(next, generate, [&](const Generated& answer) {
      spoken ? spoken->take(answer) : keep(answer.row, record_of(answer));
    });
    if (!spoken) return;
    spoken->say([&](const Generated& answer, const Json& speech) {
      Json record = record_of(answer);
      record["speech"] = speech;
      keep(answer.row, record);
    });
  };
  // What is said waits for its text: so many rows at once that prompts with their media stay few.
  const size_t at_once = spoken ? static_cast<size_t>(4 * slots * job.world.size) : order.size();
  job.control().recorder().confessing([&] {
    for (size_t begin = 0; begin < order.size(); begin += at_once) {
      const size_t end = std::min(order.size(), begin + at_once);
      answer_some({order.begin() + static_cast<int64_t>(begin), order.begin() + static_cast<int64_t>(end)});
    }
  });
}

int64_t find_answer_slots(Session& session, const AnswerFileOptions& options, const Dataset& rows,
                          const EventBus& events) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().prompt_features(sample, options.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  const ModelDims& dims = session.model().dims;
  const int64_t a_token = 2 * dims.layers * dims.kv_heads * dims.head_dim * dtype_bytes(session.dtype());
  const auto run_batch = [&](int64_t batch) {
    GenerateOptions generate = generate_options(session, batch, options.max_new_tokens, options.rows.max_length);
    generate.reuse = PromptReuse::kNone;  // as if no two rows began alike
    PromptCache prompts(dims.layers, batch);
    DecodeSlots slots(dims, generate, prompts);
    for (int64_t i = 0; i < batch; ++i) slots.admit({i, *row});
    for (int pass = 0; pass < 2 && !slots.empty(); ++pass) {
      auto parts = slots.parts();
      session.executor().forward(parts, modalities_of(parts));
      slots.take(parts);
    }
    return batch * options.max_new_tokens * a_token;  // what the answers will hold besides
  };
  return agree_batch_of(session,
                        {.row = *row,
                         .work = {.answer_tokens = options.max_new_tokens},
                         .memory_fraction = options.batch.memory_fraction,
                         .largest = rows.size()},
                        events, run_batch);
}

}  // namespace lockstep
