// Files that are named in other ways than as JSON lines: csv, text, folders, entries of dataset_info.json, columns under other
// names.
#include "lockstep/data/data_names.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/dataset.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class NamedDataTest : public InTestFolder {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  /// "q>a q>a", or what is wrong, without the folder's own name.
  std::string read(const std::vector<std::string>& paths, const DatasetOptions& options = {}) const {
    std::string out;
    try {
      const Dataset data(paths, options);
      for (int64_t i = 0; i < data.size(); ++i) {
        const Sample sample = data.sample(i);
        std::string row;
        for (const auto& message : sample.messages)
          row += (row.empty() ? "" : ">") + message.content +
                 (message.role == "system" ? "!"
                  : message.role == "tool" ? "?"
                                           : "");
        for (const auto& image : sample.images) row += " " + fs::path(image).filename().string();
        out += (out.empty() ? "" : " ") + row;
      }
      for (const auto& row : data.broken()) out += fmt::format(" broken {}: {}", row.where, row.why);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      out = error.what();
    }
    for (size_t at = out.find(folder_.string()); at != std::string::npos; at = out.find(folder_.string()))
      out.replace(at, folder_.string().size(), "DIR");
    return out;
  }
};

std::string row(const std::string& query) {
  return fmt::format("{{\"query\": \"{0}\", \"response\": \"{0}\"}}\n", query);
}

TEST_F(NamedDataTest, CsvIsReadAsPythonReadsIt) {
  EXPECT_EQ(read({write("a.csv", "\xEF\xBB\xBFquery,response\r\nq,a\r\n\r\n\"two\nlines, \"\"quoted\"\"\",b\r\n")}),
            "q>a two\nlines, \"quoted\">b");
  EXPECT_EQ(read({write("a.tsv", "query\tresponse\nq,r\ta")}), "q,r>a");
  EXPECT_EQ(read({write(
                "b.csv",
                "query,response,images,history\n<image><image>q,a,\"['x.png', 'y.png']\",\"[('h', 'i')]\"\nq,a,,\n")}),
            "h>i><image><image>q>a x.png y.png q>a");
  EXPECT_EQ(
      read({write("c.csv", "query,response\nq\nq,a\n\"q\"x,a\n\xff,a\n")}),
      "q>a broken DIR/c.csv:2: expected 2 fields, as the first line names, found 1 broken DIR/c.csv:4: expected ',' "
      "or the record's end behind the closing quote of field 1, found \"x,a\" broken DIR/c.csv:5: expected UTF-8 text, "
      "found other bytes");
}

TEST_F(NamedDataTest, ACsvWithAQuoteThatIsNeverClosedIsAnError) {
  EXPECT_EQ(read({write("a.csv", "query,response\nq,a\n\"q,a\nq,a\n")}),
            "DIR/a.csv:3: expected a closing quote for the field that opens one, found the file's end; hint: a quote "
            "inside a "
            "field is written twice, and the field stands in quotes");
  EXPECT_EQ(read({write("b.csv", "query,query\nq,a\n")}),
            "DIR/b.csv:1: expected a first line with the names of the columns, found \"query\" twice; hint: the first "
            "line of "
            "a csv file is its header");
}

TEST_F(NamedDataTest, LinesOfTextAreRowsOfText) { EXPECT_EQ(read({write("a.txt", "one\n\ntwo\r\n")}), "one two"); }

TEST_F(NamedDataTest, AFolderGivesTheFilesOfItsTrainSplit) {
  write("all/b.jsonl", row("b"));
  write("all/a.csv", "query,response\na,a\n");
  write("all/README.md", "no rows");
  EXPECT_EQ(read({(folder_ / "all").string()}), "a>a b>b");
  write("split/train-00000.jsonl", row("t"));
  write("split/test.jsonl", row("x"));
  write("split/sub/data/train.jsonl", row("s"));
  EXPECT_EQ(read({(folder_ / "split").string()}), "t>t");
  EXPECT_EQ(read({(folder_ / "split").string() + ":sub"}), "s>s");
  EXPECT_EQ(read({(folder_ / "split").string() + ":none"}),
            "--dataset DIR/split:none: expected a subset that is a folder in DIR/split, found no \"none\"; hint: there "
            "are sub");
}

TEST_F(NamedDataTest, NamesOfLlamaFactoryAreFilesWithColumnsAndTags) {
  write("data/a.json", R"([{"q": "q", "in": "i", "out": "a", "pics": ["x.png"], "sys": "s"}])");
  write(
      "data/b.jsonl",
      R"({"talk": [{"who": "person", "says": "q"}, {"who": "call", "says": "{\"name\": \"f\", \"arguments\": {}}"}, {"who": "seen", "says": "r"}, {"who": "machine", "says": "a"}]})"
      "\n");
  write("data/dataset_info.json", R"({
    "one": {"file_name": "a.json", "columns": {"prompt": "q", "query": "in", "response": "out", "images": "pics", "system": "sys"}},
    "two": {"file_name": "b.jsonl", "formatting": "sharegpt", "columns": {"messages": "talk"},
            "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "person", "assistant_tag": "machine",
                     "observation_tag": "seen", "function_tag": "call"}},
    "hub": {"hf_hub_url": "a/b"}, "pairs": {"file_name": "a.json", "ranking": true}, "gone": {"file_name": "no.json"},
    "slip": {"file_name": "a.json", "column": {}}})");
  const DatasetOptions options{.dataset_dir = (folder_ / "data").string()};
  EXPECT_EQ(read({"one", "two"}, options), "s!><image>q\ni>a x.png q>>r?>a");
  write("one", "not these");  // where the command runs: there a name is no path
  {
    const fs::path before = fs::current_path();
    fs::current_path(folder_);
    EXPECT_EQ(read({"one"}, options), "s!><image>q\ni>a x.png");
    fs::current_path(before);
  }
  EXPECT_EQ(read({"hub"}, options).substr(0, 75),
            "DIR/data/dataset_info.json: \"hub\": expected \"file_name\" with a file or fold");
  EXPECT_NE(read({"pairs"}, options).find("training by preferences is not built"), std::string::npos);
  EXPECT_NE(read({"gone"}, options).find("\"gone\": expected the file or folder DIR/data/no.json, found none"),
            std::string::npos);
  EXPECT_NE(read({"slip"}, options).find("did you mean \"columns\"?"), std::string::npos);
  EXPECT_EQ(read({"onne"}, options), "--dataset onne: no such file; hint: did you mean \"one\"?");
}

TEST_F(NamedDataTest, ColumnsInOtherLettersAreTheUsualOnes) {
  EXPECT_EQ(read({write("a.csv", "Question,Answer,Images\nq,a,x.png\n")}), "<image>q>a x.png");
  EXPECT_EQ(read({write("b.jsonl", R"({"Query": "no", "query": "q", "RESPONSE": "a"})"
                                   "\n")}),
            "q>a");
  EXPECT_EQ(read({write("c.jsonl", R"({"instruction": "q", "output": "a", "Prompt": "no", "ID": {}, "Speech": 5})"
                                   "\n")}),
            "q>a")
      << "a row has one question, and other columns are not looked at";
  EXPECT_EQ(read({write("d.jsonl", R"({"Instruction": "q", "Input": "i", "Output": "a"})"
                                   "\n")}),
            "q\ni>a");
  const auto notices = Dataset({(folder_ / "a.csv").string()}, {}).notices();
  EXPECT_NE(join(notices, "; ").find("columns are read by other letters: Answer as answer, Images as images"),
            std::string::npos)
      << join(notices, "; ");
  const std::string two = write("e.jsonl", R"({"Question": "q", "Answer": "no", "Output": null, "RESPONSE": "a"})"
                                           "\n");
  EXPECT_EQ(read({two}), "q>a") << "as where letters are small";
  for (const bool streaming : {false, true}) {
    const std::string told = join(Dataset({two}, {.streaming = streaming}).notices(), "; ");
    EXPECT_NE(told.find("Question as question, RESPONSE as response"), std::string::npos) << told;
    EXPECT_NE(told.find("not read: Answer"), std::string::npos) << told;
  }
  write("data/a.json", R"([{"instruction": "q", "output": "a", "System": "s"}])");
  write("data/dataset_info.json", R"({"plain": {"file_name": "a.json"}})");
  EXPECT_EQ(read({"plain"}, {.dataset_dir = (folder_ / "data").string()}), "q>a") << "an entry names what is read";
}

TEST_F(NamedDataTest, OfTheRowsThatAnEntryCountsNoMoreThanMaxSamplesAreTaken) {
  write("data/a.jsonl", row("a") + row("b") + row("c") + row("d"));
  write("data/dataset_info.json", R"({"three": {"file_name": "a.jsonl", "num_samples": 3,
      "columns": {"prompt": "query", "response": "response"}}})");
  DatasetOptions options{.dataset_dir = (folder_ / "data").string()};
  EXPECT_EQ(read({"three"}, options), "a>a b>b c>c");
  options.max_samples = 2;
  EXPECT_EQ(read({"three"}, options), "a>a b>b");
}

TEST_F(NamedDataTest, OfLlamaFactorysRowsWhatAnEntryDoesNotNameIsLeftOut) {
  write("data/a.json",
        R"([{"instruction": "q", "input": "i", "output": "a", "system": "s", "history": [["h", "j"]], "r": "b"}])");
  write("data/dataset_info.json", R"({
    "plain": {"file_name": "a.json"}, "few": {"file_name": "a.json", "columns": {"prompt": "instruction", "response": "output"}},
    "other": {"file_name": "a.json", "columns": {"prompt": "input", "response": "r", "system": "system"}},
    "all": {"file_name": "a.json", "columns": {"prompt": "instruction", "query": "input", "response": "output", "history": "history"}},
    "none": {"file_name": "a.json", "columns": {"prompt": "nope"}}, "part": {"file_name": "a.json", "split": "train[:1]"}})");
  const DatasetOptions options{.dataset_dir = (folder_ / "data").string()};
  EXPECT_EQ(read({"plain"}, options), "q\ni>a");
  EXPECT_EQ(read({"few"}, options), "q>a");
  EXPECT_EQ(read({"other"}, options), "s!>i>b");
  EXPECT_EQ(read({"all"}, options), "h>j>q\ni>a");
  EXPECT_NE(read({"none"}, options).find("expected a field \"messages\""), std::string::npos)
      << read({"none"}, options);
  EXPECT_NE(read({"part"}, options).find("split: expected \"train\", all that a file has"), std::string::npos);
  const Dataset few({"few"}, options);
  EXPECT_NE(join(few.notices(), "; ").find("not read: history, input, r, system"), std::string::npos)
      << join(few.notices(), "; ");
}

TEST_F(NamedDataTest, NamesOfMsSwiftAreFilesWithColumns) {
  write("x/rows.jsonl", R"({"my_q": "q", "my_a": "a"})"
                        "\n");
  const std::string info = write("info.json", R"([{"ms_dataset_id": "me/mine", "dataset_path": "x/rows.jsonl",
      "columns": {"my_q": "query", "my_a": "response"}}])");
  EXPECT_EQ(read({"me/mine#1"}, {.infos = {info}}), "q>a");
  EXPECT_EQ(read({(folder_ / "x/rows.jsonl").string()}, {.columns = {{"MY_Q", "query"}, {"my_a", "response"}}}), "q>a");
  const std::string twice = write("y.jsonl", R"({"my_q": "q", "query": "r"})"
                                             "\n");
  EXPECT_NE(read({twice}, {.columns = {{"my_q", "query"}}}).find("expected one column to be \"query\", found two"),
            std::string::npos);
}

TEST_F(NamedDataTest, NamesOfInternVlsMetaFilesAreFilesWithPicturesOfTheirOwn) {
  const std::string file = write("rows/x.jsonl", row("a") + row("b") + row("c"));
  write("pictures/a.png", "");
  write("rows/seen.jsonl", R"({"image": "a.png", "query": "<image>q", "response": "a"})"
                           "\n");
  const std::string info = write("meta.json", R"({
      "plain": {"root": "", "annotation": "rows/x.jsonl", "data_augment": false, "repeat_time": 1, "length": "three"},
      "seen": {"root": "pictures", "annotation": "rows/seen.jsonl"},
      "twice": {"root": "", "annotation": "rows/x.jsonl", "repeat_time": 2, "length": 3},
      "part": {"root": "", "annotation": "rows/x.jsonl", "repeat_time": 0.7, "length": 3},
      "unknown": {"root": "", "annotation": "rows/x.jsonl", "repeat_time": 2},
      "spoiled": {"root": "", "annotation": "rows/x.jsonl", "data_augment": true},
      "more": {"root": "", "annotation": "rows/x.jsonl", "video_fps": 2}})");
  const DatasetOptions options{.infos = {info}};
  EXPECT_EQ(read({"plain"}, options), read({file}));
  EXPECT_EQ(Dataset({"seen"}, options).sample(0).images.at(0), (folder_ / "pictures/a.png").string());
  EXPECT_EQ(Dataset({"twice"}, options).size(), 6);
  EXPECT_EQ(Dataset({"part"}, options).size(), 2);
  EXPECT_NE(read({"unknown"}, options).find("expected a repeat_time above 0 beside the length"), std::string::npos);
  EXPECT_NE(read({"spoiled"}, options).find("data_augment: expected false, found true"), std::string::npos);
  EXPECT_NE(read({"more"}, options).find("found \"video_fps\""), std::string::npos);
}

TEST_F(NamedDataTest, RowsAreDrawnByTheSeedWhereAPersonAsksForSome) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += row(std::to_string(i));
  const std::string path = write("a.jsonl", text);
  EXPECT_EQ(read({path + "#3"}), "0>0 1>1 2>2");
  const std::string drawn = read({path + "#3"}, {.draws = true, .seed = 42});
  EXPECT_EQ(drawn, read({path + "#3"}, {.draws = true, .seed = 42}));
  EXPECT_NE(drawn, read({path + "#3"}, {.draws = true, .seed = 43}));
  const Dataset more({path + "#13"}, {.draws = true, .seed = 42});
  EXPECT_EQ(more.size(), 13);
  EXPECT_EQ(more.sample(9).messages[0].content, "9");
  ASSERT_EQ(more.notices().size(), 1U);
  EXPECT_NE(more.notices()[0].find("chosen at random by --data_seed 42"), std::string::npos);
  EXPECT_NE(more.fingerprint(), Dataset({path + "#13"}, {.draws = true, .seed = 43}).fingerprint());
}

TEST_F(NamedDataTest, AColumnThatNoFormReadsIsNamedOnceAFile) {
  const std::string path = write("a.jsonl", R"({"query": "q", "imagez": ["a"]})"
                                            "\n"
                                            R"({"query": "q", "imagez": ["a"], "b": 1})"
                                            "\n");
  const Dataset data({path}, {});
  ASSERT_EQ(data.notices().size(), 1U);
  EXPECT_EQ(data.notices()[0], path + ": not read: b, imagez");
}

TEST_F(NamedDataTest, WhoSpeaksTwiceIsToldOnceAFile) {
  const auto turns = [](const std::vector<std::string>& roles) {
    std::string text;
    for (const auto& role : roles)
      text += fmt::format(R"({}{{"role": "{}", "content": "x"}})", text.empty() ? "" : ", ", role);
    return fmt::format("{{\"messages\": [{}]}}\n", text);
  };
  const std::string usual = turns({"system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant"});
  EXPECT_EQ(Dataset({write("a.jsonl", usual)}, {}).notices().size(), 0U);
  for (const char* side : {"user", "assistant"}) {
    const std::string twice = turns({"user", side, side, "assistant"});
    const std::string path = write("b.jsonl", usual + twice + twice);
    const auto told = Dataset({path}, {}).notices();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_NE(told[0].find("as in " + path + ":2, are two turns"), std::string::npos) << told[0];
  }
}

TEST_F(NamedDataTest, RowsWhoseTypesDifferAreEachReadByThemselves) {
  // What a table of one type for each column cannot hold: LlamaFactory#6298, #7266, #8805.
  EXPECT_EQ(
      read(
          {write(
               "a.jsonl",
               R"({"query": "q", "response": "a", "images": [], "id": 1})"
               "\n"
               R"({"messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}], "images": null, "id": "x"})"
               "\n"
               R"({"query": "<image>s", "response": ["c", "d"], "images": "x.png", "id": 2.5})"
               "\n"),
           write("b.jsonl", R"({"query": "t", "response": "e", "images": [{"path": "y.png"}], "extra": {"a": 1}})"
                            "\n")}),
      "q>a r>b <image>s>c x.png <image>t>e y.png");
}

}  // namespace
}  // namespace lockstep
