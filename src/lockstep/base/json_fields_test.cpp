#include "lockstep/base/json_fields.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

enum class Colour { kRed, kGreen, kOther };
std::string_view colour_name(Colour colour) {
  return colour == Colour::kRed ? "red" : colour == Colour::kGreen ? "green" : "other";
}

struct Point {
  int x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

struct Drawing {
  std::string name;
  bool shown = false;
  int64_t pen = -1;
  uint64_t seed = 0;
  double scale = 1;
  Colour colour = Colour::kRed;
  std::vector<std::vector<Point>> lines;
  std::vector<std::pair<std::string, double>> weights;
  std::optional<double> best;
  std::string note, hint;
  bool operator==(const Drawing&) const = default;
};

void describe(Point& point, JsonFields& f) {
  f.item(point.x);
  f.item(point.y);
}

void describe(Drawing& drawing, JsonFields& f) {
  f("name", drawing.name);
  f("shown", drawing.shown);
  f("pen", drawing.pen);
  f("seed", drawing.seed);
  f("scale", drawing.scale);
  f.named("colour", drawing.colour, colour_name, Colour::kOther);
  f.derived("num_lines", static_cast<int>(drawing.lines.size()));
  f("lines", drawing.lines);
  f("weights", drawing.weights);
  f("best", drawing.best);
  f.optional("note", drawing.note, !drawing.note.empty());
  f.nullable("hint", drawing.hint, !drawing.hint.empty());
}

Drawing house() {
  return {.name = "house",
          .shown = true,
          .pen = 3,
          .seed = UINT64_MAX,
          .scale = 0.5,
          .colour = Colour::kGreen,
          .lines = {{{1, 2}, {3, 4}}, {}},
          .weights = {{"wall", 2}, {"roof", 1}},
          .best = 7,
          .note = "n",
          .hint = "h"};
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + " " + error.what();
  } catch (const Json::exception& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const Json& json, JsonReading reading, std::string_view where) {
  return refusal([&] { (void)record_of<Drawing>(json, reading, where); });
}

TEST(JsonFields, AreWrittenInTheOrderOfTheirDescription) {
  EXPECT_EQ(json_of(house()).dump(),
            R"({"name":"house","shown":true,"pen":3,"seed":18446744073709551615,"scale":0.5,"colour":"green",)"
            R"("num_lines":2,"lines":[[[1,2],[3,4]],[]],"weights":{"wall":2.0,"roof":1.0},"best":7.0,"note":"n",)"
            R"("hint":"h"})");
  EXPECT_EQ(json_of(Drawing{}).dump(),
            R"({"name":"","shown":false,"pen":-1,"seed":0,"scale":1.0,"colour":"red","num_lines":0,"lines":[],)"
            R"("weights":{},"best":null,"hint":null})");
}

TEST(JsonFields, AreReadBackAsTheyWere) {
  for (const auto& drawing : {house(), Drawing{}}) {
    for (const auto reading : {JsonReading::kStrict, JsonReading::kLenient, JsonReading::kDistrustful}) {
      EXPECT_EQ(record_of<Drawing>(json_of(drawing), reading), drawing);
    }
  }
}

TEST(JsonFields, ThatNobodyDescribesAreIgnored) {
  Json json = json_of(house());
  json["later"] = 1;
  EXPECT_EQ(record_of<Drawing>(json, JsonReading::kStrict), house());
}

TEST(JsonFields, OfAnUnknownWordAreTheLastOfTheirNames) {
  Json json = json_of(house());
  json["colour"] = "blue";
  EXPECT_EQ(record_of<Drawing>(json, JsonReading::kStrict).colour, Colour::kOther);
}

TEST(JsonFields, ThatAreMissingAreNamed) {
  Json json = json_of(house());
  json.erase("pen");
  EXPECT_EQ(refusal_of(json, JsonReading::kStrict, "a.json"),
            "4 a.json: [json.exception.out_of_range.403] key 'pen' not found; hint: was it edited by hand?");
  EXPECT_EQ(refusal_of(json, JsonReading::kStrict, ""), "[json.exception.out_of_range.403] key 'pen' not found");
  EXPECT_EQ(refusal_of(json, JsonReading::kDistrustful, "a drawing"),
            "6 a drawing: \"pen\" is missing or of another kind");
  EXPECT_EQ(record_of<Drawing>(json, JsonReading::kLenient).pen, -1);
}

TEST(JsonFields, OfAnotherKindAreNamed) {
  Json json = json_of(house());
  json["lines"] = "none";
  EXPECT_EQ(refusal_of(json, JsonReading::kStrict, "a.json"),
            "4 a.json: [json.exception.type_error.302] type must be array, but is string (\"lines\"); hint: was it "
            "edited by hand?");
  EXPECT_EQ(refusal_of(json, JsonReading::kDistrustful, "a drawing"),
            "6 a drawing: \"lines\" is missing or of another kind");
  EXPECT_TRUE(record_of<Drawing>(json, JsonReading::kLenient).lines.empty());
  json["lines"] = {{{1, "two"}}};
  EXPECT_EQ(refusal_of(json, JsonReading::kStrict, "a.json"),
            "4 a.json: [json.exception.type_error.302] type must be number, but is string (\"lines\"); hint: was it "
            "edited by hand?");
}

TEST(JsonFields, OfADistrustedRecordAreNeitherRoundedNorLong) {
  Json json = json_of(Drawing{.name = std::string(9000, 'x')});
  EXPECT_EQ(record_of<Drawing>(json, JsonReading::kDistrustful).name.size(), 8192U);
  json["pen"] = 1.5;
  EXPECT_EQ(refusal_of(json, JsonReading::kDistrustful, "x"), "6 x: \"pen\" is missing or of another kind");
  EXPECT_EQ(record_of<Drawing>(json, JsonReading::kStrict).pen, 1);
}

TEST(JsonFields, ThatNoWholeNumberHoldsAreNamed) {
  const auto reads = [](const char* key, const Json& value, JsonReading reading) {
    Json json = json_of(house());
    json[key] = value;
    return refusal_of(json, reading, "a.json");
  };
  for (const Json& pen : {Json(9.7e130), Json(-1e300), Json(9.3e18), Json(UINT64_MAX)}) {
    EXPECT_NE(reads("pen", pen, JsonReading::kStrict).find("type must be a whole number in its range"),
              std::string::npos)
        << pen;
    EXPECT_EQ(reads("pen", pen, JsonReading::kDistrustful), "6 a.json: \"pen\" is missing or of another kind") << pen;
    Json json = json_of(house());
    json["pen"] = pen;
    EXPECT_EQ(record_of<Drawing>(json, JsonReading::kLenient).pen, -1) << pen;
  }
  for (const Json& seed : {Json(-1), Json(1.9e19), Json(-2.0)}) {
    EXPECT_NE(reads("seed", seed, JsonReading::kStrict), "") << seed;
  }
  for (const Json& pen : {Json(INT64_MIN), Json(INT64_MAX), Json(9.2e18), Json(-9.2e18)}) {
    EXPECT_EQ(reads("pen", pen, JsonReading::kStrict), "") << pen;
  }
}

TEST(JsonFields, ReadLenientlyTakeWhatFits) {
  const Json json = {{"scale", nullptr}, {"shown", 1}, {"weights", {{"wall", "heavy"}, {"roof", 1}}}, {"best", 2}};
  const auto drawing = record_of<Drawing>(json, JsonReading::kLenient);
  EXPECT_TRUE(std::isnan(drawing.scale));
  EXPECT_FALSE(drawing.shown);
  EXPECT_EQ(drawing.weights, (std::vector<std::pair<std::string, double>>{{"roof", 1}}));
  EXPECT_EQ(drawing.best, 2);
  EXPECT_EQ(record_of<Drawing>(Json(3), JsonReading::kLenient), Drawing{});
}

}  // namespace
}  // namespace lockstep
