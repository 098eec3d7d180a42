#include "lockstep/data/sample_row.h"

#include <array>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

Sample read(const Json& row) { return sample_from_row(row, "rows.jsonl:1", "/data"); }

/// All that a sample holds, its place apart.
Json facts(const Sample& sample) {
  Json turns = Json::array(), videos = Json::array();
  for (const auto& one : sample.messages)
    turns.push_back({one.role, one.content, one.trained, one.weight, one.fields, one.media_in_front});
  for (const auto& one : sample.videos) videos.push_back({video_json(one), one.sound});
  const RowObjects& objects = sample.objects;
  return {turns,
          sample.images,
          videos,
          sample.audios,
          {objects.refs, objects.boxes, objects.images, objects.of_one},
          sample.tools,
          sample.variables,
          sample.min_pixels,
          sample.max_pixels,
          sample.speech ? Json({sample.speech->speaker, sample.speech->codes}) : Json(),
          sample.input_ids,
          sample.labels,
          sample.references,
          sample.metadata,
          sample.group,
          sample.adapter,
          sample.id};
}

TEST(SampleRow, IsReadAsTheSameSample) {
  for (
      const char* text :
      {R"({"query": "q", "response": "a"})", R"({"text": "only words"})",
       R"({"system": "s", "query": "q", "response": ["a", "b"], "history": [["h", "i"], ["<image>j", "k"]], "images": ["x.png"]})",
       R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "r"}], "response": ["a", "c"]})",
       R"({"query": "q", "response": ["a", "b"]})", R"({"response": ["a", "b"]})",
       R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "<image>q<video>"},
            {"role": "assistant", "content": "b", "loss": false}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "c", "loss_scale": 2.5}],
            "images": [{"bytes": "AA=="}], "videos": [{"video": "a.mp4", "nframes": 4}], "id": 7, "metadata": {"a": [1, null]}, "channel": "x",
            "adapter": "one", "chat_template_kwargs": {"enable_thinking": false, "max_pixels": 50176, "min_pixels": 784}})",
       R"({"messages": [{"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
            {"role": "tool", "content": "r", "name": "f"}, {"role": "assistant", "content": "a", "reasoning_content": "t"}],
            "tools": [{"type": "function", "function": {"name": "f"}}]})",
       R"({"query": "<image>what is <bbox>?", "response": "<ref-object> at <bbox>", "images": ["a.png"],
            "objects": {"ref": ["a cat"], "bbox": [[1, 2, 30, 40], [3, 4]], "bbox_type": "real"}})",
       R"({"query": "<bbox>", "response": "a", "objects": {"bbox": [[0.1, 0.2]], "bbox_type": "norm1"}})",
       R"({"query": "see <img>a.png</img>", "response": "a"})", R"({"query": "q", "images": ["a.png", "b.png"]})",
       R"({"query": "<audio>q", "audios": ["a.wav"], "response": "a", "speech": {"speaker": "Ethan", "codes": [1, 2]}})",
       R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "q"}]},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": [{"type": "image"}, {"type": "video"}, {"type": "text", "text": "<image>r"}]}],
            "images": ["b.png", "c.png"], "videos": ["d.mp4"]})",
       R"({"prompt": [{"role": "user", "content": "q"}, {"role": "user", "content": "r"}], "response": ["a", "c"]})",
       R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "id": "x"})", R"({"input_ids": [1, 2, 3]})"}) {
    const Sample sample = read(Json::parse(text));
    const Json row = sample_row(sample);
    EXPECT_EQ(facts(read(row)), facts(sample)) << text << "\n" << row;
    EXPECT_EQ(sample_row(read(row)), row);
  }
}

/// Rows of several forms, with media that texts mark, that stand as parts, or that nothing marks.
class RandomRow {
 public:
  explicit RandomRow(uint64_t seed) : random_(seed) {}

  Json make() {
    Json row = Json::object();
    const int form = below(4);
    const int turns = 1 + below(4);
    if (form == 3 || below(3) == 0) row["system"] = words();
    if (form == 0) {
      for (int i = 0; i < turns; ++i) row["messages"].push_back(turn(i % 2 == 0 ? "user" : "assistant"));
    } else if (form == 1) {
      for (int i = 0; i + 1 < turns; ++i) row["history"].push_back(Json::array({content(), content()}));
      row["query"] = content();
      row["response"] = below(2) == 0 ? Json("an answer") : Json({"an answer", "another"});
    } else if (form == 2) {
      for (int i = 0; i < turns; ++i) row["prompt"].push_back(turn(below(2) == 0 ? "user" : "assistant"));
      row["prompt"].push_back(turn("user"));
      row["response"] = Json({"an answer", "another"});
    } else {
      row["query"] = words();
      row["response"] = words();
    }
    const auto add = [&](const char* field, int open, const char* end) {
      const int all = open + (form == 3 || below(2) == 0 ? below(3) : 0);
      for (int i = 0; i < all; ++i) row[field].push_back(std::string(1, static_cast<char>('a' + i)) + end);
    };
    add("images", images_, ".png");
    add("videos", videos_, ".mp4");
    add("audios", audios_, ".wav");
    return row;
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<uint64_t>(end)); }
  std::string words() { return std::string(1, static_cast<char>('a' + below(26))) + (below(3) == 0 ? "\nmore" : ""); }
  int& open_of(int kind) { return kind == 0 ? images_ : kind == 1 ? videos_ : audios_; }

  Json content() {
    constexpr std::array kMarks = {"<image>", "<video>", "<audio>"};
    constexpr std::array kTypes = {"image", "video", "audio"};
    const bool parts = below(2) == 0;
    Json list = Json::array();
    std::string text;
    for (int i = 1 + below(4); i > 0; --i) {
      const int kind = below(3);
      if (below(2) == 0) {
        list.push_back({{"type", "text"}, {"text", words()}});
        text += list.back()["text"];
      } else if (parts && below(2) == 0) {
        list.push_back({{"type", kTypes[static_cast<size_t>(kind)]}, {kTypes[static_cast<size_t>(kind)], "own"}});
      } else {
        list.push_back({{"type", kTypes[static_cast<size_t>(kind)]}});
        text += kMarks[static_cast<size_t>(kind)];
        ++open_of(kind);
      }
    }
    return parts ? list : Json(text);
  }

  Json turn(const std::string& role) {
    Json made = {{"role", role}, {"content", content()}};
    if (role != "assistant") return made;
    if (below(4) == 0) made["loss"] = false;
    if (below(4) == 0) made["loss_scale"] = 2.5;
    if (below(4) == 0) made["reasoning_content"] = words();
    return made;
  }

  std::mt19937_64 random_;
  int images_ = 0, videos_ = 0, audios_ = 0;  // that marks and parts take from the row's columns
};

TEST(SampleRow, OfAnyRowIsReadAsTheSameSample) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Json given = RandomRow(seed).make();
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, given.dump()));
    const Sample sample = read(given);
    const Json row = sample_row(sample);
    ASSERT_EQ(facts(read(row)), facts(sample)) << row;
    ASSERT_EQ(sample_row(read(row)), row);
  }
}

/// What is nested as deep as a row may be stands a few levels deeper in what is made of it.
TEST(SampleRow, OfDeepValuesIsReadAsTheSameSample) {
  std::string deep = "1";
  for (int i = 0; i < 240; ++i) deep = R"({"a":)" + deep + "}";
  const Sample sample = read(parse_json(
      R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": )" + deep +
          R"(}}], "messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content": {"name": "f", "arguments": )" +
          deep +
          "}}, {\"role\": \"tool_response\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
      "row"));
  EXPECT_EQ(facts(read(sample_row(sample))), facts(sample));
  EXPECT_FALSE(parse_json_or_discard(sample.messages.at(1).fields).is_discarded());
}

/// Each of these once cost the square of its length: minutes.
TEST(SampleRow, OfManyMarksAndKeysIsRead) {
  constexpr int kMany = 200'000;
  std::string opens, half, paths, keys;
  for (int i = 0; i < kMany; ++i) {
    opens += "<im";
    half += "<img>";
    if (i < kMany / 4) paths += "<img>p.png</img>";
    keys += fmt::format("{}'k{}': 1", i == 0 ? "" : ", ", i);
  }
  for (const std::string& text : {opens, half}) {
    EXPECT_EQ(read({{"query", text}, {"response", "a"}}).messages.at(0).content, text);
  }
  EXPECT_EQ(read({{"query", paths}, {"response", "a"}}).images.size(), kMany / 4);
  const Json row = {{"query", "q"}, {"response", "a"}, {"chat_template_kwargs", "{" + keys + "}"}};
  EXPECT_FALSE(read(row).variables.empty());
}

}  // namespace
}  // namespace lockstep
