#include "lockstep/data/dataset.h"

#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/random.h"
#include "lockstep/data/row_index.h"

namespace lockstep {
namespace {

/// A folder of its own for each test, gone afterwards.
class DatasetTest : public InTestFolder {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  static std::string message(const std::vector<std::string>& paths, const DatasetOptions& options = {}) {
    try {
      const Dataset data(paths, options);
      return "";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
  }
  static std::string queries(const Dataset& data) {
    std::string out;
    for (int64_t i = 0; i < data.size(); ++i) out += data.sample(i).messages.at(0).content;
    return out;
  }
};

std::string row(const std::string& query) { return fmt::format(R"({{"query": "{}", "response": "r"}})", query); }

std::string rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += row(std::to_string(i % 10)) + "\n";
  return text;
}

testing::AssertionResult holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
}

TEST_F(DatasetTest, ReadsLinesWhateverTheirEnds) {
  const std::string path = write("a.jsonl", "\xEF\xBB\xBF" + row("a") + "\r\n\r\n   \n" + row("b") + "\n" + row("c"));
  const Dataset data({path}, {});
  EXPECT_EQ(queries(data), "abc");
  EXPECT_EQ(data.sample(1).where, path + ":4");
  EXPECT_EQ(data.sample(2).row, 2);
  EXPECT_TRUE(data.broken().empty());
}

TEST_F(DatasetTest, ReadsAnArrayWhereverItsElementsLie) {
  const std::string path =
      write("a.json", "\xEF\xBB\xBF [ " + row("a") + ",\n" + row("[b]{,}") + "\n, {\"query\":\n\"c \\\" ]\"}  ]\n");
  const Dataset data({path}, {});
  EXPECT_EQ(queries(data), "a[b]{,}c \" ]");
  EXPECT_EQ(data.sample(2).where, path + "[2]");
}

TEST_F(DatasetTest, AJsonFileMayHoldLinesAndAnEmptyArrayIsNoData) {
  EXPECT_EQ(queries(Dataset({write("lines.json", row("x") + "\n" + row("y") + "\n")}, {})), "xy");
  EXPECT_TRUE(holds(message({write("none.json", "[ ]")}), "expected rows, found an empty file"));
  EXPECT_TRUE(holds(message({write("none.jsonl", "\n\n")}), "expected rows, found an empty file"));
}

TEST_F(DatasetTest, TakesTheNumberOfRowsAskedForRepeatingWhenShort) {
  const std::string path = write("a.jsonl", row("a") + "\n" + row("b") + "\n" + row("c") + "\n");
  EXPECT_EQ(queries(Dataset({path + "#2"}, {})), "ab");
  EXPECT_EQ(queries(Dataset({path + "#7"}, {})), "abcabca");
  EXPECT_EQ(queries(Dataset({path + "#1", path}, {})), "aabc");
  EXPECT_EQ(queries(Dataset({write("odd#5", row("o"))}, {})), "o");  // the file's own name
  EXPECT_TRUE(holds(message({path + "#x"}), "expected path#N with N a number from 1 to 100000000, found \"#x\""));
  EXPECT_TRUE(holds(message({path + "#0"}), "found \"#0\""));
}

TEST_F(DatasetTest, WhatIsWrongWithHalfACharacterIsSaidWhole) {
  const Dataset data({write("a.jsonl", row("a") + "\n{\"query\": \"lone \\ud800 surrogate\"}\n")}, {});
  ASSERT_EQ(data.broken().size(), 1U);
  EXPECT_TRUE(holds(data.broken()[0].why, "must be followed by U+DC00..U+DFFF")) << data.broken()[0].why;
  EXPECT_FALSE(holds(data.broken()[0].why, "??")) << data.broken()[0].why;
}

TEST_F(DatasetTest, BrokenRowsAreCountedWithLineColumnAndField) {
  const std::string path = write(
      "a.jsonl", row("a") + "\n{\"query\": \"\xC3\xA9\" oops}\n{\"query\": 5}\n" + row("b") + "\n{\"query\": \"cut");
  const Dataset data({path}, {});
  EXPECT_EQ(queries(data), "ab");
  ASSERT_EQ(data.broken().size(), 3U);
  EXPECT_EQ(data.broken()[0].where, path + ":2");
  EXPECT_TRUE(holds(data.broken()[0].why, "column 15: not valid JSON (syntax error"));  // characters, not bytes
  EXPECT_EQ(data.broken()[1].where, path + ":3");
  EXPECT_EQ(data.broken()[1].why, R"(field "query": expected text or a list of parts, found 5)");
  EXPECT_EQ(data.broken()[2].where, path + ":5");
}

TEST_F(DatasetTest, BrokenRowsKnowTheirPlaceAmongTheWholeOnes) {
  const std::string first = write("a.jsonl", "{\n" + row("a") + "\n" + row("b") + "\n{\n" + row("c") + "\n{\n");
  const std::string second = write("b.jsonl", row("d") + "\n{\n" + row("e") + "\n");
  const Dataset data({first, second}, {});
  std::vector<int64_t> before;
  for (const auto& broken : data.broken()) before.push_back(broken.rows_before);
  EXPECT_EQ(before, (std::vector<int64_t>{0, 2, 3, 4}));
  std::string order;
  data.in_file_order([&](int64_t index) { order += data.sample(index).messages.at(0).content; },
                     [&](const BrokenRow&) { order += '!'; });
  EXPECT_EQ(order, "!ab!c!d!e");
}

TEST_F(DatasetTest, FilesWithoutAWholeRowAreRefusedUnlessTheyMayBeEmpty) {
  const std::string empty = write("empty.jsonl", ""), broken = write("broken.jsonl", "{\n{\n");
  EXPECT_TRUE(holds(message({empty}, {}), "found an empty file"));
  EXPECT_TRUE(holds(message({broken}, {}), "none of its 2 rows can be read"));
  const Dataset data({empty, broken}, {.may_be_empty = true});
  EXPECT_EQ(data.size(), 0);
  int seen = 0;
  data.in_file_order([](int64_t) { FAIL(); }, [&](const BrokenRow&) { ++seen; });
  EXPECT_EQ(seen, 2);
}

TEST_F(DatasetTest, StrictStopsAtTheFirstBrokenRow) {
  const std::string path = write("a.jsonl", row("a") + "\n{\"query\": }\n{\"query\": 5}\n");
  EXPECT_TRUE(holds(message({path}, {.strict = true}), path + ":2: column 11: not valid JSON"));
  EXPECT_TRUE(holds(message({path}, {.strict = true}),
                    "hint: mend it, or --strict false: such rows are then skipped and counted"));
}

TEST_F(DatasetTest, InvalidUtf8IsABrokenRow) {
  const Dataset data({write("a.jsonl", row("a") + "\n" + row("\xFF\xFE") + "\n")}, {});
  EXPECT_EQ(data.size(), 1);
  EXPECT_TRUE(holds(data.broken().at(0).why, "ill-formed UTF-8 byte; last read: '\"?')"));
}

TEST_F(DatasetTest, ACutArrayKeepsItsWholeElements) {
  const std::string path = write("a.json", "[\n" + row("a") + ",\n" + row("b") + ",\n{\"query\": \"c");
  const Dataset data({path}, {});
  EXPECT_EQ(queries(data), "ab");
  ASSERT_EQ(data.broken().size(), 2U);
  EXPECT_EQ(data.broken()[0].where, path + "[2]");
  EXPECT_TRUE(holds(data.broken()[0].why, "line 4 column "));
  EXPECT_EQ(data.broken()[1].why, "line 4: the array is not closed; is the file complete?");
}

TEST_F(DatasetTest, LinesMayBeOneArray) {
  EXPECT_EQ(queries(Dataset({write("a.jsonl", "[" + row("a") + ", " + row("b") + "]\n")}, {})), "ab");
  EXPECT_EQ(queries(Dataset({write("b.jsonl", "[1, 2]\n" + row("b") + "\n")}, {})), "b")
      << "a row that is none, and one";
}

TEST_F(DatasetTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_TRUE(holds(message({(folder_ / "no.jsonl").string()}), "no.jsonl: no such file"));
  EXPECT_TRUE(holds(message({folder_.string()}), "expected files of the split \"train\" in "));
  EXPECT_TRUE(holds(message({write("a.jsonl", "query,response\na,b\n")}), "none of its 2 rows can be read"));
  EXPECT_TRUE(holds(message({}), "expected at least one data file"));
}

TEST_F(DatasetTest, ImagesAreSoughtBesideTheFileThenUnderTheGivenRoot) {
  const std::string path = write("a.jsonl", R"({"query": "q", "images": ["x.png"]})");
  const std::string root = (folder_ / "root").string();
  std::filesystem::create_directory(root);
  const auto found = [&] { return Dataset({path}, {.root_image_dir = root}).sample(0).images.at(0); };
  EXPECT_EQ(found(), (folder_ / "x.png").string());  // nowhere: what the message names
  write("root/x.png", "one");
  EXPECT_EQ(found(), root + "/x.png");
  write("x.png", "one");
  EXPECT_EQ(found(), (folder_ / "x.png").string());
  write("x.png", "two");
  EXPECT_THROW(found(), UserError);
  try {
    found();
  } catch (const UserError& error) {
    EXPECT_TRUE(holds(error.what(), "expected one file of that name, found two that differ: "));
  }
}

TEST_F(DatasetTest, AHugeRowIsARow) {
  const std::string path = write("a.jsonl", row(std::string(9 << 20, 'x')) + "\n" + row("b") + "\n");
  const Dataset data({path}, {});
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(data.sample(0).messages[0].content.size(), size_t{9 << 20});
}

TEST_F(DatasetTest, SeveralThreadsFindTheSameRowsAsOne) {
  std::string text;
  for (int i = 0; i < 6000; ++i)
    text += i % 1000 == 7 ? "{broken\n" : row(std::string(3000, 'x') + std::to_string(i)) + "\n";
  const Dataset data({write("big.jsonl", text)}, {});  // 18 MB: indexed in parts
  EXPECT_EQ(data.size(), 5994);
  ASSERT_EQ(data.broken().size(), 6U);
  EXPECT_TRUE(data.broken()[5].where.ends_with(":5008"));
  EXPECT_EQ(data.sample(7).messages[0].content.substr(3000), "8");
  EXPECT_EQ(data.sample(5993).messages[0].content.substr(3000), "5999");
}

TEST_F(DatasetTest, TheFingerprintTellsDataApart) {
  const std::string a = write("a.jsonl", rows(5)), b = write("b.jsonl", rows(6));
  EXPECT_EQ(Dataset({a}, {}).fingerprint(), Dataset({a}, {}).fingerprint());
  EXPECT_EQ(Dataset({a}, {}).fingerprint().size(), 16U);
  const std::set<std::string> all = {Dataset({a}, {}).fingerprint(),
                                     Dataset({b}, {}).fingerprint(),
                                     Dataset({a, b}, {}).fingerprint(),
                                     Dataset({b, a}, {}).fingerprint(),
                                     Dataset({a + "#3"}, {}).fingerprint(),
                                     Dataset::split(Dataset({a}, {}), 0.4, 1).first.fingerprint(),
                                     Dataset::split(Dataset({a}, {}), 0.4, 1).second.fingerprint()};
  EXPECT_EQ(all.size(), 7U);
}

TEST_F(DatasetTest, SplitSharesOutEveryRowOnce) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += row(std::to_string(i)) + "\n";
  const std::string path = write("a.jsonl", text);
  const auto [first, second] = Dataset::split(Dataset({path}, {}), 0.1, 42);
  EXPECT_EQ(first.size(), 45);
  EXPECT_EQ(second.size(), 5);
  std::multiset<std::string> seen;
  for (const auto* part : {&first, &second}) {
    for (int64_t i = 0; i < part->size(); ++i) seen.insert(part->sample(i).messages[0].content);
  }
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 50U);
  EXPECT_NE(queries(Dataset::split(Dataset({path}, {}), 0.1, 43).second), queries(second));
  const auto counted = Dataset::split(Dataset({path}, {}), 3, 42);
  EXPECT_EQ(counted.second.size(), 3);
  EXPECT_EQ(counted.first.size() + 3, first.size() + second.size());
  const auto all = static_cast<double>(first.size() + second.size());
  EXPECT_THROW(Dataset::split(Dataset({path}, {}), all, 42), UserError) << "no row would stay";
  EXPECT_THROW(first.sample(45), std::out_of_range);
}

TEST_F(DatasetTest, WhatIsBrokenBehindThePartThatIsTakenIsNotTold) {
  const std::string a = write("a.jsonl", row("0") + "\n{\n" + row("1") + "\n" + row("2") + "\n{\n" + row("3") + "\n"),
                    b = write("b.jsonl", row("4") + "\n");
  const auto listed = [](const Dataset& data) {
    std::string all;
    data.in_file_order(
        [&](int64_t i) { all += data.sample(i).messages[0].content; },
        [&](const BrokenRow& broken) { all += "[" + broken.where.substr(broken.where.rfind(':') + 1) + "]"; });
    return all;
  };
  EXPECT_EQ(listed(Dataset({a, b}, {})), "0[2]12[5]34");
  EXPECT_EQ(listed(Dataset({a + "#2", b}, {})), "0[2]14");
  EXPECT_EQ(listed(Dataset({a}, {.max_samples = 1})), "0");
  const auto [most, few] = Dataset::split(Dataset({a, b}, {}), 1, 42);
  EXPECT_EQ(most.broken().size(), 2U);
  EXPECT_TRUE(few.broken().empty()) << "each is told once";
}

TEST_F(DatasetTest, BoxesThatNoTextHasAPlaceForAreToldOnce) {
  const std::string boxed = R"({"query": "q", "response": "a", "objects": {"bbox": [[1, 2]]}})"
                            "\n";
  const std::string none = R"({"query": "q", "response": "a", "objects": {"bbox": []}})"
                           "\n";
  const std::string path = write("a.jsonl", none + boxed + boxed);
  const auto told = Dataset({path}, {}).notices();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("not read: \"objects\" of rows whose texts have neither <bbox> nor <ref-object>, as "),
            std::string::npos)
      << told[0];
  EXPECT_TRUE(told[0].ends_with("a.jsonl:2")) << told[0];
  EXPECT_TRUE(Dataset({write("b.jsonl", none)}, {}).notices().empty());
}

TEST_F(DatasetTest, PiecesAreRowsOfTheirOwn) {
  const Dataset whole(
      {write("a.jsonl", R"({"text": "one two three"})"
                        "\n" +
                            row("b") + "\n" + R"({"input_ids": [1, 2, 3], "labels": [1, 2, 3]})" + "\n")},
      {});
  const Dataset data = Dataset::in_pieces(whole, {{0, 0, 3}, {0, 3, 13}, {1}, {2, 0, 2}, {2, 2, 3}});
  ASSERT_EQ(data.size(), 5);
  const auto piece = [&](int64_t i) {
    const Sample sample = data.sample(i);
    return fmt::format("{}{}{}", sample.continues ? "<" : "",
                       sample.input_ids.empty() ? sample.messages[0].content : fmt::format("{}", sample.labels.size()),
                       sample.goes_on ? ">" : "");
  };
  EXPECT_EQ(piece(0), "one>");
  EXPECT_EQ(piece(1), "< two three");
  EXPECT_EQ(piece(2), "b");
  EXPECT_EQ(piece(3), "2>");
  EXPECT_EQ(piece(4), "<1");
  const int64_t all = whole.text_bytes(0);
  EXPECT_EQ(data.text_bytes(1), all * 10 / 13) << "in the unit of whole rows";
  EXPECT_EQ(data.text_bytes(2), whole.text_bytes(1));
  EXPECT_EQ(data.text_bytes(3), whole.text_bytes(2) * 2 / 3);
  EXPECT_TRUE(data.goes_on(0) && data.goes_on(3));
  EXPECT_FALSE(data.goes_on(1) || data.goes_on(2) || data.goes_on(4) || whole.goes_on(0));
  EXPECT_EQ(data.fingerprint(), whole.fingerprint()) << "of the files";
  EXPECT_NE(data.describe_pieces(),
            Dataset::in_pieces(whole, {{0, 0, 4}, {0, 4, 13}, {1}, {2, 0, 2}, {2, 2, 3}}).describe_pieces());
  EXPECT_EQ(whole.describe_pieces(), "");
}

TEST_F(DatasetTest, PiecesOfAQuestionAndItsAnswerPartBoth) {
  const std::string path = write("a.jsonl", R"({"query": "what is it?", "response": "a fox", "id": 7})"
                                            "\n");
  const Dataset data = Dataset::in_pieces(Dataset({path}, {}), {{0, 0, 5}, {0, 5, 13}, {0, 13, 16}});
  const auto piece = [&](int64_t i) {
    const Sample sample = data.sample(i);
    std::string text = sample.continues ? "<" : "";
    for (const auto& message : sample.messages) text += fmt::format("[{} {}]", message.role, message.content);
    return text + (sample.goes_on ? ">" : "") + sample.id;
  };
  EXPECT_EQ(piece(0), "[user what ]>7");
  EXPECT_EQ(piece(1), "<[user is it?][assistant a ]>7");
  EXPECT_EQ(piece(2), "<[assistant fox]7");
}

TEST(RowIndex, FindsNestedElementsAndJunkAfterTheEnd) {
  std::string problem;
  const std::string text = R"([1, [2, 3], {"a": [4, {}]}, "x,]\"y"] z)";
  std::vector<std::string> parts;
  for (const auto& span : index_array(text, problem)) parts.push_back(text.substr(span.offset, span.length));
  EXPECT_EQ(parts, (std::vector<std::string>{"1", "[2, 3]", R"({"a": [4, {}]})", R"("x,]\"y")"}));
  EXPECT_TRUE(holds(problem, "expected the end of the file after the array's ']'"));
}

TEST_F(DatasetTest, RowsThatAProgramHoldsAreThoseOfAFile) {
  const std::string text = R"([{"query": "a", "images": ["x.png"]}, {"nonsense": 1}, {"query": "b"}])";
  const Dataset file({write("rows", text)}, {}),
      held = Dataset::of_text("rows", text, {.root_image_dir = folder_.string()});
  EXPECT_EQ(queries(held), queries(file));
  EXPECT_EQ(held.fingerprint(), file.fingerprint());
  EXPECT_EQ(held.sample(0).images, file.sample(0).images);
  EXPECT_EQ(held.where(1), "rows[2]");
  ASSERT_EQ(held.broken().size(), 1U);
  EXPECT_EQ(held.broken()[0].where, "rows[1]");
  EXPECT_THROW(Dataset::of_text("rows", text, {.strict = true}), UserError);
  EXPECT_EQ(Dataset::of_text("rows", "[]", {.may_be_empty = true}).size(), 0);
}

TEST(Random, TheStreamIsTheSameEverywhere) {
  SplitMix64 random(42, 0);
  const std::vector<uint64_t> first = {random.next(), random.next()};
  SplitMix64 again(42, 0), other(42, 1);
  EXPECT_EQ(first, (std::vector<uint64_t>{again.next(), again.next()}));
  EXPECT_NE(first[0], other.next());
  int counts[3] = {};
  for (int i = 0; i < 3000; ++i) ++counts[random.below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 120);
}

}  // namespace
}  // namespace lockstep
