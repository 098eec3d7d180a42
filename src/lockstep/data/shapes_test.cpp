#include "lockstep/data/shapes.h"

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"

namespace lockstep {
namespace {

class ShapesTest : public InTestFolder {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
};

std::array<int, 3> pixel(const Image& image, int64_t x, int64_t y) {
  const uint8_t* p = &image.pixels[static_cast<size_t>((y * image.width + x) * 3)];
  return {p[0], p[1], p[2]};
}

TEST(DrawShapes, ShapesStandInTheMiddleOfTheirCells) {
  // A red circle top left, a blue cross in the right cell, 48 pixels: cells of 16.
  const Image image =
      draw_shapes({{.kind = 0, .colour = 0, .cell = 0}, {.kind = 3, .colour = 2, .cell = 5}}, 48, {240, 240, 240});
  EXPECT_EQ(pixel(image, 8, 8), (std::array<int, 3>{220, 30, 30}));
  EXPECT_EQ(pixel(image, 2, 2), (std::array<int, 3>{240, 240, 240}));  // outside the circle
  EXPECT_EQ(pixel(image, 40, 24), (std::array<int, 3>{40, 70, 220}));
  EXPECT_EQ(pixel(image, 36, 20), (std::array<int, 3>{240, 240, 240}));  // between the arms
  EXPECT_EQ(pixel(image, 24, 24), (std::array<int, 3>{240, 240, 240}));
}

TEST(DrawShapes, TheFourKindsCoverDifferentPixels) {
  std::set<std::vector<uint8_t>> pictures;
  for (int kind = 0; kind < 4; ++kind)
    pictures.insert(draw_shapes({{.kind = kind, .colour = 1, .cell = 4}}, 48, {0, 0, 0}).pixels);
  EXPECT_EQ(pictures.size(), 4U);
}

TEST_F(ShapesTest, EveryRowIsWholeAndEveryImageOpens) {
  write_shapes(folder_, {.train_rows = 300, .eval_rows = 60, .seed = 5});
  const Dataset train({path("train.jsonl")}, {.strict = true}), eval({path("eval.jsonl")}, {.strict = true});
  EXPECT_EQ(train.size(), 300);
  EXPECT_EQ(eval.size(), 60);
  std::map<std::string, int> groups;
  std::set<int64_t> edges;
  std::set<std::string> endings, train_images, eval_images;
  for (const auto* data : {&train, &eval}) {
    for (int64_t i = 0; i < data->size(); ++i) {
      const Sample sample = data->sample(i);
      ++groups[sample.group];
      ASSERT_EQ(sample.messages.size(), 2U);
      EXPECT_FALSE(expected_response(sample).empty());
      EXPECT_EQ(sample.images.empty(), sample.group == "text");
      EXPECT_EQ(sample.messages[0].content.starts_with("<image>"), !sample.images.empty());
      for (const auto& reference : sample.images) {
        const Image image = load_image(reference, sample.where);
        EXPECT_EQ(image.width, image.height);
        edges.insert(image.width);
        endings.insert(reference.substr(reference.size() - 3));
        (data == &train ? train_images : eval_images).insert(reference);
      }
    }
  }
  EXPECT_EQ(groups.size(), 5U);
  EXPECT_GT(groups["text"], 10);
  EXPECT_GT(groups["position"], 40);
  EXPECT_EQ(edges, (std::set<int64_t>{48, 64, 96, 144}));
  EXPECT_EQ(endings, (std::set<std::string>{"jpg", "png"}));
  for (const auto& reference : eval_images) EXPECT_FALSE(train_images.contains(reference));
}

TEST_F(ShapesTest, TrainingRowsComeInAllThreeForms) {
  write_shapes(folder_, {.train_rows = 200, .eval_rows = 20});
  std::map<std::string, int> forms;
  const std::string text = read_text(path("train.jsonl"));
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const Json row = Json::parse(text.substr(at, text.find('\n', at) - at));
    ++forms[row.begin().key()];
  }
  EXPECT_EQ(forms.size(), 3U);
  EXPECT_GT(forms["messages"], 100);
  EXPECT_GT(forms["conversations"], 15);
  EXPECT_GT(forms["query"], 15);
}

TEST_F(ShapesTest, NoSceneOfTheEvaluationIsTrained) {
  for (const uint64_t seed : {5, 42}) {
    write_shapes(folder_, {.train_rows = 4000, .eval_rows = 300, .seed = seed});
    std::set<std::string> scenes;
    const Dataset train({path("train.jsonl")}, {.strict = true}), eval({path("eval.jsonl")}, {.strict = true});
    for (int64_t i = 0; i < train.size(); ++i) scenes.insert(train.sample(i).metadata);
    EXPECT_GT(scenes.size(), 1000U);
    for (int64_t i = 0; i < eval.size(); ++i) {
      const Sample sample = eval.sample(i);
      EXPECT_EQ(sample.metadata.empty(), sample.images.empty());
      if (!sample.images.empty()) {
        EXPECT_FALSE(scenes.contains(sample.metadata)) << sample.metadata;
      }
    }
  }
}

TEST_F(ShapesTest, TheSameSeedGivesTheSameBytes) {
  write_shapes(folder_ / "a", {.train_rows = 40, .eval_rows = 10, .seed = 1});
  write_shapes(folder_ / "b", {.train_rows = 40, .eval_rows = 10, .seed = 1});
  write_shapes(folder_ / "c", {.train_rows = 40, .eval_rows = 10, .seed = 2});
  int images = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "a")) {
    if (!entry.is_regular_file()) continue;
    const auto relative = std::filesystem::relative(entry.path(), folder_ / "a");
    EXPECT_EQ(read_text(entry.path()), read_text(folder_ / "b" / relative)) << relative;
    ++images;
  }
  EXPECT_GT(images, 30);
  EXPECT_NE(read_text(path("a/train.jsonl")), read_text(path("c/train.jsonl")));
}

TEST_F(ShapesTest, FiguresSayWhatAGuesserReaches) {
  const ShapesFigures figures = write_shapes(folder_, {.train_rows = 3000, .eval_rows = 1000});
  // 10 % text (1/16), the rest evenly colour (1/6), kind (1/4), count (1/3), position (1/9).
  EXPECT_NEAR(figures.uniform, 0.1 / 16 + 0.225 * (1.0 / 6 + 1.0 / 4 + 1.0 / 3 + 1.0 / 9), 0.02);
  EXPECT_GT(figures.majority, 0.12);
  EXPECT_LT(figures.majority, 0.30);
  // Whoever reads only the question knows the text rows, and guesses the others, a little worse than by chance: the
  // scenes that are kept for the evaluation are those that training has least of.
  EXPECT_NEAR(figures.blind, 0.1 + 0.225 * (1.0 / 6 + 1.0 / 4 + 1.0 / 3 + 1.0 / 9) - 0.05, 0.06);
  EXPECT_DOUBLE_EQ(read_json(path("figures.json"))["blind"].get<double>(), figures.blind);
}

}  // namespace
}  // namespace lockstep
