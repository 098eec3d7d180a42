#include "lockstep/tasks/answer_prompts.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/infer/dataset_prompts.h"
#include "lockstep/infer/generator.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

namespace {

/// As docs/rows.md reads it.
Json turn_of(const Message& message) {
  Json turn = {{"role", message.role}, {"content", message.content}};
  if (!message.fields.empty()) turn.update(parse_json(message.fields, "fields of a turn"));
  if (!message.trained) turn["loss"] = false;
  if (message.weight != 1) turn["loss_scale"] = message.weight;
  return turn;
}

/// Those that the marks in the turns stand for: an answer's own went with it.
Json objects_of(const RowObjects& objects, const Json& turns) {
  size_t refs = 0, boxes = 0;
  const auto count = [](const std::string& text, std::string_view mark) {
    size_t found = 0;
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + mark.size())) ++found;
    return found;
  };
  for (const auto& turn : turns) {
    refs += count(turn["content"].get_ref<const std::string&>(), kRefMark);
    boxes += count(turn["content"].get_ref<const std::string&>(), kBoxMark);
  }
  Json out = {{"ref", Json::array()}, {"bbox", Json::array()}, {"image_id", Json::array()}};
  for (size_t i = 0; i < std::min(refs, objects.refs.size()); ++i) out["ref"].push_back(objects.refs[i]);
  for (size_t i = 0; i < std::min(boxes, objects.boxes.size()); ++i) {
    out["bbox"].push_back(objects.boxes[i]);
    out["image_id"].push_back(objects.images.at(i));
  }
  if (objects.of_one) out["bbox_type"] = "norm1";
  return out;
}

/// What a row says beside its turns and media, and what its prompt depends on.
void add_asked(const Sample& sample, Json& row) {
  if (!sample.tools.empty()) row["tools"] = parse_json(sample.tools, "tools");
  if (!sample.variables.empty()) row["chat_template_kwargs"] = parse_json(sample.variables, "chat_template_kwargs");
  if (sample.min_pixels > 0) row["chat_template_kwargs"]["min_pixels"] = sample.min_pixels;
  if (sample.max_pixels > 0) row["chat_template_kwargs"]["max_pixels"] = sample.max_pixels;
  if (!sample.objects.empty()) row["objects"] = objects_of(sample.objects, row["messages"]);
  if (!sample.adapter.empty()) row["adapter"] = sample.adapter;
  if (!sample.group.empty()) row["group"] = sample.group;
}

}  // namespace

Json answer_row(const Sample& sample, const Json& record) {
  const auto response = record["response"].get<std::string>();
  Json messages = Json::array();
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  for (size_t i = 0; i + (answered ? 1 : 0) < sample.messages.size(); ++i) {
    messages.push_back(turn_of(sample.messages[i]));
  }
  const std::string before = is_text_alone(sample) ? sample.messages.back().content : "";  // a text that is continued
  messages.push_back({{"role", "assistant"}, {"content", before + response}});
  const std::string expected = expected_response(sample);
  Json row = {
      {"response", response}, {"labels", expected.empty() ? Json(nullptr) : Json(expected)}, {"messages", messages}};
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  if (!sample.audios.empty()) row["audios"] = sample.audios;
  add_asked(sample, row);
  for (const char* key : {"finish_reason", "speech"}) {
    if (record.contains(key)) row[key] = record[key];
  }
  if (!sample.id.empty()) row["id"] = sample.id;
  if (!sample.metadata.empty()) row["metadata"] = parse_json(sample.metadata, "metadata");
  return row;
}

Json failed_row(const std::string& where, const std::string& why) {
  return {{"response", nullptr}, {"where", where}, {"error", why}};
}

int64_t answer_slots(int64_t batch, const Dataset& rows) { return std::min(batch, std::max<int64_t>(1, rows.size())); }

void answer_prompts(Session& session, const AnswerFileOptions& options, int64_t slots, const Dataset& rows,
                    const std::vector<int64_t>& order, const KeepAnswer& keep) {
  Job& job = session.job();
  GenerateOptions generate = generate_options(session, slots, options.max_new_tokens, options.sampling);
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
    GenerateOptions generate = generate_options(session, batch, options.max_new_tokens);
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
  return agree_batch_size(session.job(), options.batch.memory_fraction, rows.size(), events, run_batch);
}

}  // namespace lockstep
