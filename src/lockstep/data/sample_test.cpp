#include "lockstep/data/sample.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/processor.h"

namespace lockstep {
namespace {

Sample read(const std::string& row) { return sample_from_row(Json::parse(row), "train.jsonl:17", "/data"); }

/// "role: content | role: content", with '-' after an assistant that is not trained.
std::string turns(const Sample& sample) {
  std::string out;
  for (const auto& message : sample.messages) {
    out += (out.empty() ? "" : " | ") + message.role + (message.trained ? "" : "-") + ": " + message.content;
  }
  return out;
}

std::string complaint(const std::string& row) {
  try {
    read(row);
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
}

using Paths = std::vector<std::string>;

TEST(Sample, ReadsMessages) {
  const Sample sample = read(R"({"messages": [
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "<image>What is it?"},
      {"role": "assistant", "content": "A cat.", "loss": false}, {"role": "user", "content": "Sure?"},
      {"role": "assistant", "content": "Yes.", "loss": null}], "images": ["a/b.png"], "channel": "animals", "id": 5})");
  EXPECT_EQ(turns(sample),
            "system: Be brief. | user: <image>What is it? | assistant-: A cat. | user: Sure? | assistant: Yes.");
  EXPECT_EQ(sample.images, (Paths{"/data/a/b.png"}));
  EXPECT_EQ(sample.group, "animals");
  EXPECT_EQ(sample.where, "train.jsonl:17");
  EXPECT_EQ(expected_response(sample), "Yes.");
}

TEST(Sample, ReadsLlavaConversationsWithMarksWhereTheyStand) {
  const Sample sample = read(R"({"id": "x", "image": "x.jpg", "conversations": [
      {"from": "human", "value": "What is\n<image> this?"}, {"from": "gpt", "value": "A dog."}]})");
  EXPECT_EQ(turns(sample), "user: What is\n<image> this? | assistant: A dog.");
  EXPECT_EQ(sample.images, (Paths{"/data/x.jpg"}));
}

TEST(Sample, ReadsTheOtherSpellingsOfConversations) {
  EXPECT_EQ(turns(read(
                R"({"conversation": [{"human": "Hi", "assistant": "Hello"}, {"human": "Bye", "assistant": "Ciao"}]})")),
            "user: Hi | assistant: Hello | user: Bye | assistant: Ciao");
  EXPECT_EQ(
      turns(read(
          R"({"system": "S", "conversations": [{"role": "user", "content": "Hi"}, {"from": "bot", "value": "Yo"}]})")),
      "system: S | user: Hi | assistant: Yo");
  EXPECT_EQ(turns(read(R"({"messages": [{"from": "human", "value": "q"}, {"from": "observation", "value": "t"}]})")),
            "user: q | tool: t");
}

TEST(Sample, ReadsQueryAndResponseUnderEveryName) {
  EXPECT_EQ(turns(read(R"({"system": "S", "query": "q", "response": "r", "history": [["a", "b"], ["c", "d"]]})")),
            "system: S | user: a | assistant: b | user: c | assistant: d | user: q | assistant: r");
  for (const char* query : {"query", "prompt", "input", "instruction", "question", "problem"}) {
    for (const char* response : {"response", "answer", "output", "targets", "target", "answer_key", "answers",
                                 "solution", "text", "completion", "content"}) {
      Json row;
      row[query] = "q";
      row[response] = "r";
      EXPECT_EQ(turns(sample_from_row(row, "w", "/")), "user: q | assistant: r") << query << " " << response;
    }
  }
  EXPECT_EQ(turns(read(R"({"instruction": "Add.", "input": "1 2", "output": "3"})")), "user: Add.\n1 2 | assistant: 3");
  EXPECT_EQ(turns(read(R"({"instruction": "Add.", "input": "", "output": "3", "history": null})")),
            "user: Add. | assistant: 3");
  EXPECT_EQ(turns(read(R"({"query": "only a question"})")), "user: only a question");
  EXPECT_EQ(expected_response(read(R"({"query": "only a question"})")), "");
  EXPECT_EQ(expected_response(read(R"({"query": "c", "history": [["a", "b"]]})")), "") << "an answer of before";
}

TEST(Sample, AListOfTextsNamesSeveralAcceptedAnswers) {
  const Sample sample = read(R"({"query": "How many?", "answers": ["2", "two", ""]})");
  EXPECT_EQ(turns(sample), "user: How many? | assistant: 2");
  EXPECT_EQ(sample.references, (std::vector<std::string>{"2", "two", ""}));
  EXPECT_TRUE(read(R"({"query": "q", "answer": "2"})").references.empty());
  // Parts of one answer are no list of answers.
  const Sample parts =
      read(R"({"query": "q", "answer": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})");
  EXPECT_EQ(expected_response(parts), "ab");
  EXPECT_TRUE(parts.references.empty());
}

TEST(Sample, CarriesMetadataOfAnyShapeAsItStands) {
  const auto metadata = [](const std::string& value) {
    return read(R"({"query": "q", "response": "r", "metadata": )" + value + "}").metadata;
  };
  for (const char* value : {R"({"b":{"page":[3,null,0.1]},"a":"zwölf"})", "[]", "\"id-7\"", "12345678901234567890",
                            "null", "false", "[[1],[2,3],[]]"}) {
    EXPECT_EQ(metadata(value), value);
  }
  EXPECT_EQ(read(R"({"query": "q"})").metadata, "");
}

TEST(Sample, ImagesWithoutMarkStandBeforeTheFirstQuestion) {
  const Sample one = read(R"({"query": "What?", "response": "x", "images": ["1.png", "2.png"]})");
  EXPECT_EQ(turns(one), "user: <image><image>What? | assistant: x");
  EXPECT_EQ(one.images, (Paths{"/data/1.png", "/data/2.png"}));
  // One mark, two images: the first goes to the front, the mark keeps the second.
  const Sample two =
      read(R"({"messages": [{"role": "user", "content": "See <image>?"}], "images": ["1.png", "2.png"]})");
  EXPECT_EQ(turns(two), "user: <image>See <image>?");
  EXPECT_EQ(two.images, (Paths{"/data/1.png", "/data/2.png"}));
  const Sample three =
      read(R"({"messages": [{"role": "system", "content": "Like <image>"}, {"role": "user", "content": "See <image>?"}],
                              "images": ["1.png", "2.png", "3.png"]})");
  EXPECT_EQ(turns(three), "system: Like <image> | user: <image>See <image>?");
  EXPECT_EQ(three.images, (Paths{"/data/1.png", "/data/2.png", "/data/3.png"}));
}

TEST(Sample, ReadsOpenAiContentParts) {
  const Sample sample = read(R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "Is "}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
      {"type": "text", "text": " like "}, {"type": "image"}, {"type": "image", "image": "z.png"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "No."}]}], "images": ["mine.png"]})");
  EXPECT_EQ(turns(sample), "user: Is <image> like <image><image> | assistant: No.");
  EXPECT_EQ(sample.images, (Paths{"data:image/png;base64,AAAA", "/data/mine.png", "/data/z.png"}));
}

TEST(Sample, ReadsMiniCpmsNamedImages) {
  const Sample sample =
      read(R"({"image": {"<image_00>": "a.png", "<image_01>": "b.png", "<image_02>": "c.png"}, "conversations": [
      {"role": "user", "content": "First <image_01> then <image_00>."}, {"role": "assistant", "content": "ok"}]})");
  EXPECT_EQ(turns(sample), "user: <image>First <image> then <image>. | assistant: ok");
  EXPECT_EQ(sample.images, (Paths{"/data/c.png", "/data/b.png", "/data/a.png"}));
  EXPECT_EQ(read(R"({"image": {"<image>": "a.png"}, "query": "q"})").images, (Paths{"/data/a.png"}));
}

TEST(Sample, ReadsEveryFormOfAnImageReference) {
  const auto image = [](const std::string& value) { return read(R"({"query": "q", "images": )" + value + "}").images; };
  EXPECT_EQ(image(R"("/abs/x.png")"), (Paths{"/abs/x.png"}));
  EXPECT_EQ(image(R"(["../up.png"])"), (Paths{"/up.png"}));
  EXPECT_EQ(image(R"(["file:///abs/y.png"])"), (Paths{"/abs/y.png"}));
  EXPECT_EQ(image(R"([{"path": "p.png", "bytes": null}])"), (Paths{"/data/p.png"}));
  EXPECT_EQ(image(R"([{"bytes": "QUJD"}])"), (Paths{"data:;base64,QUJD"}));
  EXPECT_EQ(image(R"("")"), Paths{});
  EXPECT_EQ(image("null"), Paths{});
  EXPECT_EQ(image("[]"), Paths{});
  const std::string base64(600, 'A');
  EXPECT_EQ(image('"' + base64 + '"'), (Paths{"data:;base64," + base64}));
}

TEST(Sample, MoreMarksThanImagesIsAnError) {
  EXPECT_EQ(
      complaint(R"({"messages": [{"role": "user", "content": "<image> <image>"}], "image": "a.png"})"),
      "train.jsonl:17: expected an image for each <image> mark, found 2 marks and 1 images; hint: write \"images\": "
      "[...] with one path a mark");
}

TEST(Sample, WhatThisBuildCannotTrainIsRefused) {
  const auto refused = [](const std::string& row, const std::string& part) {
    const std::string text = complaint(row);
    return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(
      refused(R"({"query": "q", "videos": [3]})",
              R"(train.jsonl:17: field "videos[0]": expected a file, or a list of frames, at least one, found 3)"));
  EXPECT_TRUE(refused(R"({"query": "q", "videos": ["https://x.org/v.mp4"]})", "fetch the files first"));
  EXPECT_TRUE(refused(R"({"query": "q", "audio": 3})", R"(field "audio": expected a path)"));
  EXPECT_TRUE(refused(R"({"query": "<audio><audio>", "audios": ["a.wav"]})",
                      "expected an audio for each <audio> mark, found 2 marks and 1 audios"));
  EXPECT_TRUE(refused(R"({"messages": [{"role": "user", "content": [{"type": "video", "video": 7}]}]})",
                      R"(field "messages[0].content[0]": expected a file, or a list of frames)"));
  EXPECT_TRUE(refused(
      R"({"messages": [{"role": "user", "content": [{"type": "smell", "smell": "a"}]}]})",
      R"(field "messages[0].content[0].type": expected text, image, image_url, video, video_url, audio, audio_url or )"
      R"(input_audio, found "smell")"));
  EXPECT_TRUE(refused(R"({"query": "<video>", "videos": [{"frames": ["a"], "fps": 0}]})", "frames a second, above 0"));
  EXPECT_TRUE(refused(R"({"query": "<video><video>", "videos": [["a"]]})",
                      "expected a video for each <video> mark, found 2 marks and 1 videos"));
  EXPECT_EQ(complaint(R"({"query": "The <video> tag of HTML"})"), "");
  EXPECT_TRUE(refused(R"({"query": "q", "video": ["a"], "videos": [["a"]]})", R"(either "videos" or "video")"));
  EXPECT_TRUE(refused(R"({"query": "q", "images": ["https://x.org/a.png"]})", "fetch the files first"));
  EXPECT_EQ(complaint(R"({"query": "q", "videos": [], "audios": null, "tools": "", "objects": {}})"), "");
  EXPECT_EQ(complaint(R"({"query": "q", "objects": {"bbox": [[1, 2, 3, 4]]}})"), "");  // nothing refers to them
}

TEST(Sample, AudiosAreFilesWhereverTheyStand) {
  const auto text_and_audios = [](const std::string& row) {
    const Sample sample = read(row);
    return std::pair(sample.messages[0].content, sample.audios);
  };
  using Names = std::vector<std::string>;
  const auto two = std::pair(std::string("<audio>and <audio>?"), Names{"/data/a.wav", "/data/b.mp3"});
  EXPECT_EQ(text_and_audios(R"({"query": "<audio>and <audio>?", "audios": ["a.wav", {"path": "b.mp3"}]})"), two);
  EXPECT_EQ(text_and_audios(R"({"messages": [{"role": "user", "content": [{"type": "audio", "audio": "a.wav"},
      "and ", {"type": "audio_url", "audio_url": {"url": "b.mp3"}}, "?"]}]})"),
            two);
  EXPECT_EQ(text_and_audios(R"({"query": "What?", "audio": "a.wav"})"),
            std::pair(std::string("<audio>What?"), Names{"/data/a.wav"}));
  EXPECT_EQ(text_and_audios(R"({"messages": [{"role": "user", "content": [{"type": "input_audio",
      "input_audio": {"data": "UklGRg==", "format": "wav"}}]}]})"),
            std::pair(std::string("<audio>"), Names{"data:;base64,UklGRg=="}));
  EXPECT_EQ(complaint(R"({"query": "The <audio> tag of HTML"})"), "");
  EXPECT_EQ(describe_media(read(R"({"query": "q", "image": "a.png", "audios": ["a.wav", "b.wav"]})")),
            "1 image and 2 audios");
}

TEST(Sample, VideosAreListsOfFramesWhereverTheyStand) {
  const Sample plain = read(R"({"query": "<video>What?", "videos": [["a.png", "b.png"]]})");
  ASSERT_EQ(plain.videos.size(), 1U);
  EXPECT_EQ(plain.videos[0].frames, (std::vector<std::string>{"/data/a.png", "/data/b.png"}));
  EXPECT_EQ(plain.videos[0].fps, 0);
  const Sample single = read(R"({"query": "What?", "video": ["a.png"]})");
  EXPECT_EQ(single.messages[0].content, "<video>What?");
  ASSERT_EQ(single.videos.size(), 1U);
  const Sample timed =
      read(R"({"query": "<image><video>", "image": "i.png", "videos": [{"frames": ["a.png"], "fps": 1.5}]})");
  EXPECT_EQ(timed.videos[0].fps, 1.5);
  EXPECT_EQ(timed.images, std::vector<std::string>{"/data/i.png"});
  const Sample parts = read(
      R"({"messages": [{"role": "user", "content": [{"type": "video", "video": ["b.png"], "sample_fps": 4}, {"type": "video"},
          {"type": "text", "text": "x"}]}], "videos": [["c.png"]]})");
  EXPECT_EQ(parts.messages[0].content, "<video><video>x");
  ASSERT_EQ(parts.videos.size(), 2U);
  EXPECT_EQ(parts.videos[0], (Video{{"/data/b.png"}, 4}));
  EXPECT_EQ(parts.videos[1], (Video{{"/data/c.png"}, 0}));
}

TEST(Sample, VideosAreFilesWhereverTheyStand) {
  const auto only = [](const std::string& row) {
    const Sample sample = read(row);
    EXPECT_EQ(sample.videos.size(), 1U) << row;
    return sample.videos.at(0);
  };
  const Video plain{.file = "/data/a.mp4"};
  for (const char* row :
       {R"({"query": "What?", "video": "a.mp4"})", R"({"query": "What?", "videos": "a.mp4"})",
        R"({"query": "<video>?", "videos": ["a.mp4"]})",
        R"({"query": "q", "videos": [{"path": "a.mp4", "bytes": null}]})",
        R"({"query": "q", "videos": ["file:///data/a.mp4"]})",
        R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "a.mp4"}}]}]})",
        R"({"conversations": [{"from": "human", "value": "<video>?"}], "video": "a.mp4"})"}) {
    EXPECT_EQ(only(row), plain) << row;
  }
  EXPECT_EQ(only(R"({"query": "q", "videos": [{"bytes": "AAAA"}]})").file, "data:;base64,AAAA");
  const Video asked = only(R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "a.mp4", "fps": 1,
      "min_frames": 2, "max_frames": 6, "min_pixels": 10, "max_pixels": 100, "total_pixels": 1000}]}]})");
  EXPECT_EQ(asked, (Video{.fps = 1,
                          .file = "/data/a.mp4",
                          .min_frames = 2,
                          .max_frames = 6,
                          .min_pixels = 10,
                          .max_pixels = 100,
                          .total_pixels = 1000}));
  EXPECT_EQ(video_json(plain), Json("/data/a.mp4"));
  EXPECT_EQ(only(Json({{"query", "q"}, {"videos", {video_json(asked)}}}).dump()), asked)
      << "what is written can be read";
  EXPECT_EQ(media_references(read(R"({"query": "q", "videos": ["a.mp4", ["b.png"]]})")),
            (std::vector<std::string>{"/data/a.mp4", "/data/b.png"}));
}

TEST(Sample, WhatIsAskedOfAVideoIsKnownOrRefused) {
  const auto asked = [](const std::string& keys) {
    return complaint(R"({"query": "q", "videos": [{"video": "a.mp4", )" + keys + "}]}");
  };
  const auto of_frames = [](const std::string& keys) {
    return complaint(R"({"query": "q", "videos": [{"frames": ["a.png"], )" + keys + "}]}");
  };
  EXPECT_EQ(asked(R"("nframes": 8)"), "");
  EXPECT_EQ(of_frames(R"("sample_fps": 2, "raw_fps": 25, "max_pixels": 9)"), "");
  for (const char* keys :
       {R"("video_start": 3)", R"("resized_height": 28)", R"("sample_fps": 2)", R"("frame_count": 8)"})
    EXPECT_NE(asked(keys).find("expected no such key"), std::string::npos) << keys << asked(keys);
  EXPECT_NE(of_frames(R"("nframes": 8)").find(R"(field "videos[0].nframes": expected no such key, found 8)"),
            std::string::npos);
  EXPECT_NE(asked(R"("nframes": 8, "fps": 1)").find("either nframes or frames a second"), std::string::npos);
  for (const char* keys : {R"("fps": 0)", R"("fps": "2")", R"("nframes": -1)", R"("max_pixels": [])"})
    EXPECT_NE(asked(keys).find("above 0"), std::string::npos) << keys << asked(keys);
}

TEST(Sample, BrokenRowsNameFieldExpectedAndFound) {
  EXPECT_EQ(complaint("[1, 2]"), "train.jsonl:17: field \"(row)\": expected a JSON object, found [1,2]");
  EXPECT_EQ(
      complaint(R"({"mesages": []})"),
      R"(train.jsonl:17: expected a field "messages", "conversations" or "query" (prompt, question, instruction, ...), )"
      R"(found mesages; hint: did you mean "messages" where the row has "mesages"?)");
  EXPECT_EQ(complaint(R"({"messages": []})"),
            R"(train.jsonl:17: field "messages": expected a list of turns, at least one, found [])");
  EXPECT_EQ(complaint(R"({"messages": [7]})"),
            R"(train.jsonl:17: field "messages[0]": expected an object with role and content, found 7)");
  EXPECT_EQ(
      complaint(R"({"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]})"),
      R"(train.jsonl:17: field "messages[1].role": expected system, user (human), assistant (gpt, bot), tool or tool_call, found "robot")");
  EXPECT_EQ(
      complaint(R"({"messages": [{"role": "user"}]})"),
      R"(train.jsonl:17: field "messages[0]": expected an object with content (or value), found {"role":"user"})");
  EXPECT_EQ(complaint(R"({"messages": [{"role": "user", "content": 5}]})"),
            R"(train.jsonl:17: field "messages[0].content": expected text or a list of parts, found 5)");
  EXPECT_EQ(complaint(R"({"query": "q", "response": ["a"]})"), "");  // a list of parts may hold bare text
  EXPECT_EQ(complaint(R"({"query": "q", "images": 3})"),
            R"(train.jsonl:17: field "images": expected a path, a data: URI or {"path": ...}, found 3)");
  EXPECT_EQ(complaint(R"({"query": "q", "history": [["a"]]})"),
            R"(train.jsonl:17: field "history[0]": expected a pair [question, answer], found ["a"])");
  EXPECT_NE(complaint(R"({"query": "q", "images": ["a"], "image": "b"})"), "");
  EXPECT_NE(complaint(R"({"messages": [{"role": "assistant", "content": "a"}], "images": ["a.png"]})"), "");
}

}  // namespace
}  // namespace lockstep
