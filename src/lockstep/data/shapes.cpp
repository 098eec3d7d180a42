#include "lockstep/data/shapes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/data/random.h"

namespace lockstep {

namespace {

constexpr std::array<std::array<uint8_t, 3>, 6> kPaint = {
    {{220, 30, 30}, {30, 160, 50}, {40, 70, 220}, {240, 220, 30}, {150, 40, 180}, {250, 135, 20}}};
constexpr std::array<const char*, 3> kNumbers = {"one", "two", "three"};
constexpr std::array<std::array<const char*, 2>, 16> kFacts = {{{"What comes after one?", "two"},
                                                                {"What comes after two?", "three"},
                                                                {"What comes after three?", "four"},
                                                                {"What comes after four?", "five"},
                                                                {"What comes after five?", "six"},
                                                                {"What comes after six?", "seven"},
                                                                {"What comes after seven?", "eight"},
                                                                {"What comes after eight?", "nine"},
                                                                {"What is the opposite of hot?", "cold"},
                                                                {"What is the opposite of big?", "small"},
                                                                {"What is the opposite of up?", "down"},
                                                                {"What is the opposite of day?", "night"},
                                                                {"What is the opposite of wet?", "dry"},
                                                                {"What is the opposite of old?", "new"},
                                                                {"What is the opposite of open?", "closed"},
                                                                {"What is the opposite of fast?", "slow"}}};

/// A question about one scene (or about none).
struct Question {
  std::string group, text, answer;
};

/// How many answers a group can have: what "uniform" guesses among.
const std::map<std::string, double> kAnswersOfGroup = {
    {"colour", 6}, {"kind", 4}, {"count", 3}, {"position", 9}, {"text", 16}};

/// Is the point inside? x, y from the cell's centre, in units of the shape's radius.
bool is_inside(int kind, double x, double y) {
  switch (kind) {
    case 0:  // circle
      return x * x + y * y <= 0.64;
    case 1:  // square
      return std::max(std::abs(x), std::abs(y)) <= 0.95;
    case 2:  // triangle, point upwards
      return y >= -1.0 && y <= 0.8 && std::abs(x) <= (y + 1.0) * 0.56;
    default:  // cross
      return std::max(std::abs(x), std::abs(y)) <= 1.0 && std::min(std::abs(x), std::abs(y)) <= 0.3;
  }
}

/// `count` different numbers under `bound`, in random order.
std::vector<int> draw_different(SplitMix64& random, int count, int bound) {
  std::vector<int> all(static_cast<size_t>(bound));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(all[i], all[i + static_cast<size_t>(random.below(bound - static_cast<int64_t>(i)))]);
  }
  all.resize(static_cast<size_t>(count));
  return all;
}

enum class Topic { kColour, kKind, kCount, kPosition };

/// The form of a shape is what a model learns last, and half of the other questions stand on it: it is asked most
/// often.
Topic draw_topic(SplitMix64& random) {
  const int64_t percent = random.below(100);
  return percent < 20 ? Topic::kColour : percent < 65 ? Topic::kKind : percent < 80 ? Topic::kCount : Topic::kPosition;
}

/// How many shapes a picture has. Counts are asked of any number alike. For the other questions most pictures hold one
/// shape: what a shape looks like is learned there, and which of several is meant follows from it.
int draw_count(SplitMix64& random, Topic topic, int max_shapes) {
  if (topic == Topic::kCount) return static_cast<int>(1 + random.below(max_shapes));
  const int64_t percent = random.below(100);
  return std::min(max_shapes, percent < 60 ? 1 : percent < 90 ? 2 : 3);
}

std::vector<DrawnShape> draw_scene(SplitMix64& random, int count) {
  const auto kinds = draw_different(random, count, kShapeKinds.size());
  const auto colours = draw_different(random, count, kShapeColours.size());
  const auto cells = draw_different(random, count, kShapePlaces.size());
  std::vector<DrawnShape> scene;
  for (size_t i = 0; i < kinds.size(); ++i) scene.push_back({.kind = kinds[i], .colour = colours[i], .cell = cells[i]});
  return scene;
}

/// What stands where, in the order of the cells: two pictures of one scene differ at most in size, paper and file type.
std::string describe(std::vector<DrawnShape> scene) {
  std::sort(scene.begin(), scene.end(), [](const auto& a, const auto& b) { return a.cell < b.cell; });
  std::string text;
  for (const auto& shape : scene) {
    text +=
        fmt::format("{}{} {} at {}", text.empty() ? "" : ", ", kShapeColours.at(static_cast<size_t>(shape.colour)),
                    kShapeKinds.at(static_cast<size_t>(shape.kind)), kShapePlaces.at(static_cast<size_t>(shape.cell)));
  }
  return text;
}

/// One scene in eight is kept for the evaluation. With one shape there are 216 scenes in all: drawn freely, nearly
/// every one of the evaluation would have been trained too.
bool is_held_out(const std::string& scene, uint64_t seed) {
  uint64_t hash = seed;
  for (const char letter : scene) hash = SplitMix64(hash ^ static_cast<uint8_t>(letter)).next();
  return hash % 8 == 0;
}

/// About the first shape, which is as random as any.
Question ask(Topic topic, const std::vector<DrawnShape>& scene) {
  const auto& shape = scene.front();
  const std::string kind = kShapeKinds.at(static_cast<size_t>(shape.kind));
  const std::string colour = kShapeColours.at(static_cast<size_t>(shape.colour));
  switch (topic) {
    case Topic::kColour:
      return {.group = "colour", .text = fmt::format("What colour is the {}?", kind), .answer = colour};
    case Topic::kKind:
      return {.group = "kind", .text = fmt::format("What shape is {}?", colour), .answer = kind};
    case Topic::kCount:
      return {.group = "count", .text = "How many shapes are there?", .answer = kNumbers.at(scene.size() - 1)};
    case Topic::kPosition:
      break;
  }
  return {.group = "position",
          .text = fmt::format("Where is the {}?", kind),
          .answer = kShapePlaces.at(static_cast<size_t>(shape.cell))};
}

/// The row in one of the three forms; `image` may be empty.
Json make_row(const Question& question, const std::string& image, const std::string& scene, int64_t form) {
  Json row;
  const std::string mark = image.empty() ? "" : "<image>";
  if (form == 0) {
    row["messages"] = {{{"role", "user"}, {"content", mark + question.text}},
                       {{"role", "assistant"}, {"content", question.answer}}};
    if (!image.empty()) row["images"] = Json::array({image});
  } else if (form == 1) {
    row["conversations"] = {{{"from", "human"}, {"value", mark + question.text}},
                            {{"from", "gpt"}, {"value", question.answer}}};
    if (!image.empty()) row["image"] = image;
  } else {
    row["query"] = question.text;
    row["response"] = question.answer;
    if (!image.empty()) row["images"] = Json::array({image});
  }
  row["group"] = question.group;
  if (!scene.empty()) row["metadata"] = {{"scene", scene}};
  return row;
}

/// Most pictures have the tower's size or a multiple of it; some need true resampling.
int64_t draw_edge(SplitMix64& random) {
  constexpr std::array<int64_t, 10> kEdges = {48, 48, 48, 48, 48, 96, 96, 96, 144, 64};
  return kEdges.at(static_cast<size_t>(random.below(kEdges.size())));
}

/// Near the mean that towers subtract, so that what they see is the shapes and not the paper.
std::array<uint8_t, 3> draw_background(SplitMix64& random) {
  const auto grey = static_cast<uint8_t>(105 + random.below(21));
  return {grey, grey, grey};
}

struct Part {
  std::string name;  // "train", "eval"
  int64_t rows = 0;
  uint64_t stream = 0;
  bool held_out = false;  // scenes of the evaluation
  bool mixed_forms = false;
};

std::vector<Question> write_part(const std::filesystem::path& dir, const ShapesOptions& options, const Part& part) {
  SplitMix64 random(options.seed, part.stream);
  std::vector<Question> questions;
  std::string lines;
  for (int64_t i = 0; i < part.rows; ++i) {
    std::string image, seen;
    const bool has_image = static_cast<double>(random.below(1000)) >= options.text_share * 1000;
    if (has_image) {
      const Topic topic = draw_topic(random);
      const int count = draw_count(random, topic, options.max_shapes);
      std::vector<DrawnShape> scene;
      do {
        scene = draw_scene(random, count);
        seen = describe(scene);
      } while (is_held_out(seen, options.seed) != part.held_out);
      questions.push_back(ask(topic, scene));
      const bool is_jpeg = random.below(4) == 0;
      image = fmt::format("images/{}_{:06}.{}", part.name, i, is_jpeg ? "jpg" : "png");
      const int64_t edge = draw_edge(random);
      const Image drawn = draw_shapes(scene, edge, draw_background(random));
      write_text(dir / image, is_jpeg ? encode_jpeg(drawn, 95) : encode_png(drawn));
    } else {
      const auto& fact = kFacts.at(static_cast<size_t>(random.below(kFacts.size())));
      questions.push_back({.group = "text", .text = fact[0], .answer = fact[1]});
    }
    const int64_t form = part.mixed_forms ? std::max<int64_t>(0, random.below(6) - 3) : 0;
    lines += make_row(questions.back(), image, seen, form).dump() + "\n";
  }
  write_text(dir / (part.name + ".jsonl"), lines);
  return questions;
}

/// Always gives the answer that was most frequent in training under the same key; the share of hits on `eval`.
template <typename Key>
double most_frequent_hits(const std::vector<Question>& train, const std::vector<Question>& eval, Key key) {
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const auto& question : train) ++counts[key(question)][question.answer];
  int64_t hits = 0;
  for (const auto& question : eval) {
    const auto& answers = counts[key(question)];
    const auto best = std::max_element(answers.begin(), answers.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    hits += best != answers.end() && best->first == question.answer ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(eval.size());
}

}  // namespace

Image draw_shapes(const std::vector<DrawnShape>& shapes, int64_t edge, std::array<uint8_t, 3> background) {
  Image image{.width = edge, .height = edge, .pixels = std::vector<uint8_t>(static_cast<size_t>(edge * edge * 3))};
  const double cell = static_cast<double>(edge) / 3, radius = 0.46 * cell;
  for (int64_t y = 0; y < edge; ++y) {
    for (int64_t x = 0; x < edge; ++x) {
      auto paint = background;
      for (const auto& shape : shapes) {
        const int column = shape.cell % 3, row = shape.cell / 3;
        const double from_x = (static_cast<double>(x) + 0.5 - (column + 0.5) * cell) / radius;
        const double from_y = (static_cast<double>(y) + 0.5 - (row + 0.5) * cell) / radius;
        if (is_inside(shape.kind, from_x, from_y)) paint = kPaint.at(static_cast<size_t>(shape.colour));
      }
      std::copy(paint.begin(), paint.end(), &image.pixels[static_cast<size_t>((y * edge + x) * 3)]);
    }
  }
  return image;
}

ShapesFigures write_shapes(const std::filesystem::path& dir, const ShapesOptions& options) {
  check(options.train_rows > 0 && options.eval_rows > 0 && options.max_shapes >= 1 && options.max_shapes <= 3 &&
            options.text_share >= 0 && options.text_share <= 1,
        "write_shapes: options out of range");
  make_folders(dir / "images");
  const auto train =
      write_part(dir, options, {.name = "train", .rows = options.train_rows, .stream = 1, .mixed_forms = true});
  const auto eval =
      write_part(dir, options, {.name = "eval", .rows = options.eval_rows, .stream = 2, .held_out = true});

  ShapesFigures figures;
  for (const auto& question : eval)
    figures.uniform += 1.0 / kAnswersOfGroup.at(question.group) / static_cast<double>(eval.size());
  figures.majority = most_frequent_hits(train, eval, [](const Question& q) { return q.group; });
  figures.blind = most_frequent_hits(train, eval, [](const Question& q) { return q.text; });
  write_json(dir / "figures.json", {{"train_rows", options.train_rows},
                                    {"eval_rows", options.eval_rows},
                                    {"seed", options.seed},
                                    {"uniform", figures.uniform},
                                    {"majority", figures.majority},
                                    {"blind", figures.blind}});
  return figures;
}

}  // namespace lockstep
