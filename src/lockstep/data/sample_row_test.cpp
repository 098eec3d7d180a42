#include "lockstep/data/sample_row.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

Sample read(const Json& row) { return sample_from_row(row, "rows.jsonl:1", "/data"); }

/// All that a sample holds, its place apart.
Json facts(const Sample& sample) {
  Json turns = Json::array(), videos = Json::array();
  for (const auto& one : sample.messages) turns.push_back({one.role, one.content, one.trained, one.weight, one.fields});
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
       R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "id": "x"})", R"({"input_ids": [1, 2, 3]})"}) {
    const Sample sample = read(Json::parse(text));
    const Json row = sample_row(sample);
    EXPECT_EQ(facts(read(row)), facts(sample)) << text << "\n" << row;
    EXPECT_EQ(sample_row(read(row)), row);
  }
}

}  // namespace
}  // namespace lockstep
