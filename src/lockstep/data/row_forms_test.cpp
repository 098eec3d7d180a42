// The forms that rows come in, one line each: docs/rows.md has the same list. What each becomes is compared whole, so that a
// field with another meaning shows.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/row_mapping.h"
#include "lockstep/data/sample.h"

namespace lockstep {
namespace {

/// "user: <image>q | assistant: a; images /data/a.png", what is not trained with '-', what counts otherwise with "*0.5".
std::string described(const Sample& sample) {
  std::string out;
  for (const auto& message : sample.messages) {
    out += (out.empty() ? "" : " | ") + message.role + (message.trained ? "" : "-");
    if (message.weight != 1) out += fmt::format("*{}", message.weight);
    out += ": " + message.content + message.fields;
  }
  if (!sample.images.empty()) out += fmt::format("; images {}", fmt::join(sample.images, ","));
  for (const auto& video : sample.videos) out += "; video " + video_json(video).dump();
  if (!sample.tools.empty()) out += "; tools " + sample.tools;
  if (!sample.variables.empty()) out += "; variables " + sample.variables;
  if (sample.min_pixels > 0 || sample.max_pixels > 0)
    out += fmt::format("; pixels {} {}", sample.min_pixels, sample.max_pixels);
  if (!sample.objects.empty())
    out += fmt::format("; objects {} {} {}{}", Json(sample.objects.refs).dump(), Json(sample.objects.boxes).dump(),
                       Json(sample.objects.images).dump(), sample.objects.of_one ? " of one" : "");
  if (!sample.references.empty()) out += "; accepted " + Json(sample.references).dump();
  if (!sample.group.empty()) out += "; group " + sample.group;
  return out;
}

std::string read(const std::string& row) {
  try {
    return described(sample_from_row(Json::parse(row), "rows.jsonl:1", "/data"));
  } catch (const UserError& error) {
    return error.what();
  }
}

struct Form {
  const char *row, *becomes;
};

constexpr const char* kCallAndResult =
    R"(user: q | assistant: {"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]} | tool: r | assistant: a)";

TEST(RowForms, Conversations) {
  const Form forms[] = {
      {R"({"messages": [{"role": "user", "content": "<image>q"}, {"role": "assistant", "content": "a"}], "images": ["a.png"]})",
       "user: <image>q | assistant: a; images /data/a.png"},
      {R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
       "system: s | user: q | assistant: a"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "loss": false}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "loss": true}]})",
       "user: q | assistant-: a | user: r | assistant: b"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "loss_scale": 0.5}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "loss_scale": 2.0}, {"role": "assistant", "content": "c", "loss_scale": 0}]})",
       "user: q | assistant*0.5: a | user: r | assistant*2: b | assistant-: c"},
      {R"({"conversations": [{"from": "human", "value": "<image>\nq"}, {"from": "gpt", "value": "a"}], "image": "a.png"})",
       "user: <image>\nq | assistant: a; images /data/a.png"},
      {R"({"conversation": [{"human": "q", "assistant": "a"}], "system": "s"})", "system: s | user: q | assistant: a"},
      {R"({"query": "q", "response": "a", "history": [["h", "i"]], "system": "s"})",
       "system: s | user: h | assistant: i | user: q | assistant: a"},
      {R"({"query": "q", "response": "a", "system_prompt": "s"})", "system: s | user: q | assistant: a"},
      {R"({"query": "q", "response": "a", "history": "[('h', \"it's\"), ['k', 'l']]"})",
       "user: h | assistant: it's | user: k | assistant: l | user: q | assistant: a"},
      {R"({"query": "q", "response": "a", "history": "[[\"h\", \"i\"]]"})",
       "user: h | assistant: i | user: q | assistant: a"},
      {R"({"query": "q", "response": "a", "history": ""})", "user: q | assistant: a"},
      {R"({"messages": "[{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', 'loss': False}]"})",
       "user: q | assistant-: a"},
      {R"({"instruction": "q", "input": "i", "output": "a"})", "user: q\ni | assistant: a"},
      {R"({"instruction": "", "input": "i", "output": "a"})", "user: i | assistant: a"},
      {R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "a"}]})",
       "system: s | user: q | assistant-: b | user: r | assistant: a"},
      {R"({"prompt": [{"role": "user", "content": "<image>q"}], "completion": "a", "images": ["a.png"]})",
       "user: <image>q | assistant: a; images /data/a.png"},
      {R"({"prompt": [{"type": "text", "text": "q"}], "response": "a"})", "user: q | assistant: a"},
      {R"({"query": "q", "response": ["a", "b"], "channel": "c"})",
       "user: q | assistant: a; accepted [\"a\",\"b\"]; group c"},
      {R"({"text": "only words"})", "assistant: only words"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "t"}]})",
       R"(user: q | assistant: a{"reasoning_content":"t"})"},
  };
  for (const auto& [row, becomes] : forms) EXPECT_EQ(read(row), becomes) << row;
}

TEST(RowForms, Media) {
  const Form forms[] = {
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "text", "text": "q"}]}]})",
       "user: <image>q; images data:image/png;base64,AA=="},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}, {"type": "text", "text": "q"}]}]})",
       "user: <image>q; images data:;base64,AA=="},
      {R"({"query": "<video>q", "videos": [["a.png", "b.png"]]})",
       R"(user: <video>q; video ["/data/a.png","/data/b.png"])"},
      {R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "a.mp4", "fps": 2}, {"type": "text", "text": "q"}]}]})",
       R"(user: <video>q; video {"video":"/data/a.mp4","fps":2.0})"},
      {R"({"query": "q", "images": [{"bytes": "AA==", "path": "a.png"}]})", "user: <image>q; images data:;base64,AA=="},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "bytes": "AA==", "path": "a.png"}, {"type": "text", "text": "q"}]}]})",
       "user: <image>q; images data:;base64,AA=="},
      {R"({"query": "q", "images": [{"bytes": "AA==", "path": null}, {"bytes": null, "path": "a.png"}]})",
       "user: <image><image>q; images data:;base64,AA==,/data/a.png"},
      {R"({"conversations": [{"role": "user", "content": "<image_01> and <image_00>"}], "image": {"<image_00>": "a.png", "<image_01>": "b.png"}})",
       "user: <image> and <image>; images /data/b.png,/data/a.png"},
      {R"({"query": "<img>a.png</img>q", "response": "a"})", "user: <image>q | assistant: a; images /data/a.png"},
      {R"({"query": "<image>see <img>x</img>", "images": ["a.png"]})",
       "user: <image>see <img>x</img>; images /data/a.png"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<image>a"}], "images": ["a.png"]})",
       "user: q | assistant: <image>a; images /data/a.png"},
      {R"({"query": "<image>q", "images": ["a.png"], "chat_template_kwargs": {"min_pixels": 1000, "max_pixels": 50176, "enable_thinking": false}})",
       R"(user: <image>q; images /data/a.png; variables {"enable_thinking":false}; pixels 1000 50176)"},
      {R"({"query": "<video>q", "videos": ["a.mp4"], "chat_template_kwargs": {"fps": 2, "max_pixels": 50176}})",
       R"(user: <video>q; video {"video":"/data/a.mp4","fps":2.0,"max_pixels":50176}; pixels 0 50176)"},
      {R"({"query": "<video>q", "videos": [{"video": "a.mp4", "nframes": 4}], "chat_template_kwargs": "{'fps': 2, 'max_frames': 8}"})",
       R"(user: <video>q; video {"video":"/data/a.mp4","nframes":4})"},
  };
  for (const auto& [row, becomes] : forms) EXPECT_EQ(read(row), becomes) << row;
  // As ms-swift puts them there: pictures, then sounds in front of those, then films.
  EXPECT_EQ(read(R"({"query": "q", "images": ["a.png"], "videos": ["a.mp4"], "audios": ["a.wav"]})"),
            R"(user: <video><audio><image>q; images /data/a.png; video "/data/a.mp4")");
}

TEST(RowForms, WhatIsNoPictureIsNone) {
  for (const char* part : {R"({"Text": "q"})", R"({"foo": "bar"})", R"({"role": "user", "content": "q"})"}) {
    const std::string row = fmt::format(R"({{"query": [{}], "images": ["a.png"]}})", part);
    EXPECT_NE(read(row).find("expected a part such as"), std::string::npos) << read(row);
  }
  for (const char* row :
       {R"({"query": "q", "images": [{"path": "a.png", "max_pixels": 3136}]})",
        R"({"query": [{"type": "image", "image": "a.png", "resized_height": 56}, {"type": "text", "text": "q"}]})",
        R"({"query": [{"type": "image_url", "image_url": {"url": "a.png", "min_pixels": 56}}]})"}) {
    EXPECT_NE(read(row).find("expected no size of one picture"), std::string::npos) << read(row);
  }
}

TEST(RowForms, APartThatTakesTheRowsNextMediumSaysNothingAboutIt) {
  for (const char* kind : {"image", "video", "audio"}) {
    const std::string row = fmt::format(R"({{"query": [{{"type": "{0}", "file": "b.x"}}], "{0}s": ["a.x"]}})", kind);
    EXPECT_NE(read(row).find(fmt::format(".file\": expected \"{}\": the medium, or nothing", kind)), std::string::npos)
        << read(row);
  }
  EXPECT_EQ(read(R"({"query": [{"type": "image", "image": null, "index": 0, "file": null}], "images": ["a.png"]})"),
            "user: <image>; images /data/a.png");
  for (const char* part :
       {R"({"type": "text", "text": "q", "image": "a.png"})", R"({"text": "q", "video": "a.mp4"})"}) {
    const std::string what = read(fmt::format(R"({{"query": [{}]}})", part));
    EXPECT_NE(what.find("expected a text or a medium: two parts"), std::string::npos) << what;
  }
}

TEST(RowForms, BytesOfATableAreNoText) {
  const std::string what = read(R"({"query": "data:;base64,aGk=", "response": "a"})");
  EXPECT_NE(what.find(R"(field "query": expected text, not bytes)"), std::string::npos) << what;
  EXPECT_EQ(read(R"({"query": "data:image/png;base64, is a prefix"})"), "user: data:image/png;base64, is a prefix");
}

TEST(RowForms, ContentOfAPartIsReadUnderEveryName) {
  for (const char* key : {"bytes", "base64", "data"}) {
    const auto part = [&](const char* type) {
      return fmt::format(R"({{"query": [{{"type": "{}", "{}": "AA=="}}, {{"type": "text", "text": "q"}}]}})", type,
                         key);
    };
    EXPECT_EQ(read(part("image")), "user: <image>q; images data:;base64,AA==");
    EXPECT_EQ(read(part("video")), R"(user: <video>q; video "data:;base64,AA==")");
    EXPECT_EQ(sample_from_row(Json::parse(part("audio")), "a", "/data").audios.at(0), "data:;base64,AA==");
  }
  for (const char* part :
       {R"({"type": "image", "data": {"path": "a.png"}})", R"({"type": "image", "data": {"url": "a.png"}})",
        R"({"type": "image_url", "image_url": {"image": {"path": "a.png"}}})"}) {
    EXPECT_EQ(read(fmt::format(R"({{"query": [{}, {{"type": "text", "text": "q"}}]}})", part)),
              "user: <image>q; images /data/a.png");
  }
  EXPECT_EQ(read(R"({"query": "q", "images": [{"image": {"bytes": "AA==", "path": "a.png"}}]})"),
            "user: <image>q; images data:;base64,AA==");
  EXPECT_NE(read(R"({"query": "q", "images": [{"image": {"path": "a.png", "max_pixels": 9}}]})")
                .find("no size of one picture"),
            std::string::npos);
  EXPECT_EQ(read(R"({"query": "q", "images": ["DATA:image/png;BASE64,AA=="]})"),
            "user: <image>q; images data:image/png;BASE64,AA==");
}

TEST(RowForms, APartOfATableHasFieldsOfOtherParts) {
  const std::string plain = read(R"({"query": "<video>q", "videos": ["a.mp4"]})");
  EXPECT_EQ(read(R"({"query": [{"type": "video", "index": 0, "text": null, "nframes": null},
                               {"type": "text", "text": "q", "index": null}], "videos": ["a.mp4"]})"),
            plain);
  EXPECT_EQ(read(R"({"query": [{"type": "video", "video": "a.mp4", "text": ""}, {"type": "text", "text": "q"}]})"),
            plain);
}

TEST(RowForms, WhatAPartAsksInVainIsRefused) {
  const Form forms[] = {
      {R"({"query": [{"type": "video", "nframes": 4}], "videos": ["a.mp4"]})",
       R"(field "query[0].nframes": expected "video": the medium, or nothing)"},
      {R"({"query": [{"type": "video", "nonsense": 4}], "videos": ["a.mp4"]})", R"(field "query[0].nonsense")"},
      {R"({"query": [{"type": "audio", "audio": "a.wav", "audio_start": 0.5}]})",
       R"(field "query[0].audio_start": expected a whole clip)"},
      {R"({"query": "q", "audios": [{"path": "a.wav", "audio_end": 1}]})",
       R"(field "audios[0].audio_end": expected a whole clip)"},
      {R"({"query": "q", "images": ["a.png\u0000.jpg"]})",
       R"(field "images[0]": expected a path without a byte of zero)"},
  };
  for (const auto& [row, said] : forms) EXPECT_NE(read(row).find(said), std::string::npos) << row << read(row);
}

TEST(RowForms, ToolsInEverySpelling) {
  const Form forms[] = {
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}, {"role": "tool", "content": "r"}, {"role": "assistant", "content": "a"}]})",
       kCallAndResult},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"role": "tool_response", "content": "r"}, {"role": "assistant", "content": "a"}]})",
       kCallAndResult},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "{'name': 'f', 'arguments': {'x': 1}}"}, {"from": "observation", "value": "r"}, {"from": "gpt", "value": "a"}]})",
       kCallAndResult},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"x": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "content": "r"}]}, {"role": "assistant", "content": "a"}]})",
       kCallAndResult},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, {"type": "tool_use", "id": "i", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "and?"}]}]})",
       R"(user: q | assistant: let me see{"tool_calls":[{"type":"function","function":{"name":"f","arguments":{}},"id":"i"}]} | tool: r{"tool_call_id":"i"} | user: and?)"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "w"}, {"role": "tool_call", "content": {"name": "f", "arguments": {}}}, {"role": "tool_call", "content": {"name": "g"}, "loss": true}, {"role": "tool", "content": {"a": [1]}}]})",
       R"(user: q | assistant: w{"tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}},{"type":"function","function":{"name":"g","arguments":{}}}]} | tool: {"a": [1]})"},
      {R"({"query": "q", "tools": "[{\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}]"})",
       R"(user: q; tools [{"type":"function","function":{"name":"f","description":"d","parameters":{}}}])"},
      {R"({"query": "q", "tools": [{"type": "function", "function": {"name": "f"}}, {"name": "g", "input_schema": {"a": 1}}, "{\"name\": \"h\"}"]})",
       R"(user: q; tools [{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"a":1}}},{"type":"function","function":{"name":"h"}}])"},
      {R"({"query": "q", "tools": "[]"})", "user: q"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content": "{\"name\": "}]})",
       R"(rows.jsonl:1: field "messages[1].content": expected {"name": ..., "arguments": {...}} as JSON, found "{\"name\": " (byte 9: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal))"},
      {R"({"query": "q", "tools": "[{]"})",
       R"(rows.jsonl:1: field "tools": expected a list of functions as JSON, found "[{]" (byte 2: syntax error while parsing object key - unexpected ']'; expected string literal))"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "x=1"}}]}]})",
       R"(rows.jsonl:1: field "messages[1].tool_calls[0].function.arguments": expected a JSON object of arguments, found "x=1" (byte 0: syntax error while parsing value - invalid literal; last read: 'x'))"},
  };
  for (const auto& [row, becomes] : forms) EXPECT_EQ(read(row), becomes) << row;
}

// Each call wrote all before it once more: 20,000 took minutes.
TEST(RowForms, ThousandsOfCallsGoWithOneAnswer) {
  constexpr size_t kCalls = 20'000;
  Json turns = {{{"role", "user"}, {"content", "q"}}};
  for (size_t i = 0; i < kCalls; ++i)
    turns.push_back(
        {{"role", "tool_call"}, {"content", R"({"name": "f", "arguments": {"x": )" + std::to_string(i) + "}}"}});
  turns.push_back({{"role", "tool"}, {"content", "r"}});
  turns.push_back({{"role", "tool_call"}, {"content", R"({"name": "g", "arguments": {}})"}});
  Json row;
  row["messages"] = std::move(turns);
  const Sample sample = sample_from_row(row, "rows.jsonl:1", "/data");
  ASSERT_EQ(sample.messages.size(), 4U);
  const Json calls = Json::parse(sample.messages[1].fields)["tool_calls"];
  ASSERT_EQ(calls.size(), kCalls);
  EXPECT_EQ(calls.back()["function"]["arguments"]["x"].get<size_t>(), kCalls - 1);
  EXPECT_EQ(Json::parse(sample.messages[3].fields)["tool_calls"].size(), 1U);
}

// Each name was looked for among all before it: 100,000 took a minute.
TEST(RowForms, ManyColumnsAreRenamedAtOnce) {
  std::string text = R"({"role": "x")";
  for (int i = 0; i < 100'000; ++i) text += fmt::format(R"(, "c{}": {})", i, i);
  const Json row = parse_json(text + "}", "row");
  const Json out = mapped_row(row, {.columns = {{"C7", "query"}}}, "rows.jsonl:1");
  EXPECT_EQ(out.size(), row.size());
  EXPECT_EQ(out["query"].get<int>(), 7);
  EXPECT_FALSE(out.contains("c7"));
  const Json turns = mapped_row({{"messages", Json::array({row})}}, {.roles = {{"x", "user"}}}, "rows.jsonl:1");
  EXPECT_EQ(turns["messages"][0].size(), row.size());
  EXPECT_EQ(turns["messages"][0]["role"].get<std::string>(), "user");
}

TEST(RowForms, Boxes) {
  const Form forms[] = {
      {R"({"query": "<image>where is <ref-object>?", "response": "<bbox> and <bbox>", "images": ["a.png"], "objects": {"ref": ["the cat"], "bbox": [[30, 40, 10, 20], [5, 6]]}})",
       R"(user: <image>where is <ref-object>? | assistant: <bbox> and <bbox>; images /data/a.png; objects ["the cat"] [[10.0,20.0,30.0,40.0],[5.0,6.0]] [0,0])"},
      {R"({"query": "<bbox>", "objects": "{'ref': [], 'bbox': [[0.1, 0.2]], 'bbox_type': 'norm1'}"})",
       "user: <bbox>; objects [] [[0.1,0.2]] [0] of one"},
      {R"({"query": "<bbox>", "images": ["a.png"], "objects": {"bbox": [[1, 2], [3, 4]]}})",
       R"(rows.jsonl:1: field "objects.bbox": expected one for each <bbox> in the texts, found 2 and 1 mark(s))"},
      {R"({"query": "<bbox><ref-object>", "images": ["a.png"], "objects": {"bbox": [[1, 2]]}})",
       R"(rows.jsonl:1: field "objects.ref": expected one for each <ref-object> in the texts, found 0 and 1 mark(s))"},
      {R"({"query": "<bbox>", "images": ["a.png"], "objects": {"bbox": [[1, 2]], "image_id": [1]}})",
       R"(rows.jsonl:1: field "objects.image_id": expected a picture of the row, 1 of them, found number 1; hint: pictures are counted from 0; boxes of parts of 1 are "bbox_type": "norm1")"},
      {R"({"query": "<bbox>", "images": ["a.png"], "objects": {"bbox": [[1, 2, 3]]}})",
       R"(rows.jsonl:1: field "objects.bbox[0]": expected [x1, y1, x2, y2], or [x, y] of a point, found [1,2,3])"},
      {R"({"query": "<bbox>", "images": ["a.png"], "objects": {"bbox": [[1, 2]], "boxtype": "real"}})",
       R"(rows.jsonl:1: field "objects.boxtype": expected ref, bbox, bbox_type or image_id, found "real")"},
  };
  for (const auto& [row, becomes] : forms) EXPECT_EQ(read(row), becomes) << row;
}

TEST(RowForms, WhatAFormDoesNotReadIsNamed) {
  const auto unread = [](const char* row) { return unread_columns(Json::parse(row)); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unread(R"({"query": "q", "response": "a", "imagez": ["a.png"], "old": null})"), Names{"imagez"});
  EXPECT_EQ(
      unread(R"({"messages": [{"role": "user", "content": "q", "mood": 1}, {"role": "user", "content": "q", "mood": 2}],
                       "rejected_response": "b"})"),
      (Names{"rejected_response", "messages[].mood"}));
  EXPECT_EQ(unread(R"({"instruction": "q", "input": "i", "output": "a", "id": 1, "system_prompt": "s"})"), Names{});
  EXPECT_EQ(unread(R"({"query": "q", "prompt": "p", "response": "a"})"), Names{"prompt"});
  EXPECT_EQ(
      unread(
          R"({"messages": [{"role": "user", "content": "q", "loss": true}, {"role": "assistant", "content": "a", "loss": true}]})"),
      Names{"messages[].loss of a question"});
  EXPECT_EQ(
      unread(
          R"({"messages": [{"role": "user", "content": "q", "loss": false}, {"role": "assistant", "content": "a"}]})"),
      Names{});
}

}  // namespace
}  // namespace lockstep
