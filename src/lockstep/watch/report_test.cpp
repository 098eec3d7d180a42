#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/base/json.h"
#include "lockstep/watch/chart_svg.h"
#include "lockstep/watch/html.h"
#include "lockstep/watch/jsonl_sink.h"
#include "lockstep/watch/report_charts.h"
#include "lockstep/watch/report_sink.h"

namespace lockstep {
namespace {

std::filesystem::path fresh_folder(const char* name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "report" / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// A run such as the demo's: two ranks, 600 steps, an evaluation every 100.
std::vector<Event> synthetic_run(const std::string& image, const std::string& outcome, int exit_code) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 1);
  std::vector<Event> events{RunStarted{
      .verb = "sft",
      .output_dir = "output/shapes",
      .model_family = "llava",
      .args_json = R"({"model": "demo-model", "deepspeed": "zero3", "torch_dtype": "bfloat16", "learning_rate": 0.002,
                       "per_device_train_batch_size": 16, "dataset": ["train.jsonl", "extra.jsonl"], "seed": 42})",
      .plan_text = "step  block                   bytes\n   0  embed_tokens         1.20 MiB\n   1  layers.0           "
                   "  0.41 MiB\n",
      .world_size = 2,
      .max_steps = 600,
      .num_params = 2'104'320,
      .num_trainable_params = 2'104'320}};
  events.emplace_back(Notice{"--zero3 <old name> was taken for --deepspeed zero3"});
  for (int64_t step = 5; step <= 600; step += 5) {
    const double t = static_cast<double>(step) / 600;
    events.emplace_back(
        StepDone{.step = step,
                 .max_steps = 600,
                 .epoch = 3 * t,
                 .loss = 0.08 + 3.2 * std::exp(-5 * t) * (1 + 0.05 * noise(random)),
                 .grad_norm = 0.6 + 2 * std::exp(-3 * t) + 0.15 * std::abs(noise(random)),
                 .learning_rate = 2e-3 * (t < 0.05 ? t / 0.05 : 0.5 * (1 + std::cos(3.14159 * t))),
                 .token_accuracy = 0.98 - 0.8 * std::exp(-4 * t),
                 .tokens_per_second = 8400 + 300 * noise(random),
                 .seconds_per_step = 0.2,
                 .elapsed_seconds = 120 * t,
                 .remaining_seconds = 120 - 120 * t,
                 .peak_bytes = {int64_t(412e6 + 2e6 * noise(random)), int64_t(405e6 + 2e6 * noise(random))},
                 .predicted_bytes = {430'000'000, 430'000'000},
                 .gather_wait_seconds = 0.012 + 0.002 * std::abs(noise(random)),
                 .reduce_wait_seconds = 0.02 + 0.004 * std::abs(noise(random)),
                 .gather_bytes = 8'400'000,
                 .reduce_bytes = 4'200'000});
    if (step % 100 != 0) continue;
    events.emplace_back(
        EvalDone{.step = step,
                 .num_samples = 256,
                 .loss = 0.1 + 3 * std::exp(-5 * t),
                 .token_accuracy = 0.97 - 0.8 * std::exp(-4 * t),
                 .exact_match = 0.94 - 0.7 * std::exp(-4 * t),
                 .seconds = 2,
                 .samples = {{"What colour is the shape in the top left?", "red", "red", image, true},
                             {"How many circles are there?", "3", "2", image, false},
                             {"Say <b>hello</b> & \"bye\"", "<script>alert(1)</script>", "你好", "", false}},
                 .groups = {{"colour", 0.99}, {"kind", 0.96}, {"count", 0.88}, {"position", 0.93}, {"no image", 1.0}}});
    events.emplace_back(CheckpointSaved{
        .step = step, .bytes = 25 << 20, .path = "output/shapes/checkpoint-" + std::to_string(step), .seconds = 0.3});
  }
  events.emplace_back(RunEnded{.outcome = outcome,
                               .exit_code = exit_code,
                               .seconds = 123,
                               .train_loss = 0.4,
                               .step = 600,
                               .last_checkpoint = "output/shapes/checkpoint-600",
                               .next_command = "lockstep infer --model output/shapes/checkpoint-600"});
  return events;
}

// The smallest PNG: one red pixel.
std::string write_pixel(const std::filesystem::path& folder) {
  constexpr unsigned char kPng[] = {0x89, 'P',  'N',  'G',  0x0D, 0x0A, 0x1A, 0x0A, 0,    0,    0,    0x0D, 'I',  'H',
                                    'D',  'R',  0,    0,    0,    1,    0,    0,    0,    1,    8,    2,    0,    0,
                                    0,    0x90, 0x77, 0x53, 0xDE, 0,    0,    0,    0x0C, 'I',  'D',  'A',  'T',  0x08,
                                    0xD7, 0x63, 0xF8, 0xCF, 0xC0, 0,    0,    3,    1,    1,    0,    0x18, 0xDD, 0x8D,
                                    0xB0, 0,    0,    0,    0,    'I',  'E',  'N',  'D',  0xAE, 0x42, 0x60, 0x82};
  const auto path = folder / "pixel.png";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(kPng), sizeof kPng);
  return path.string();
}

TEST(Report, IsOneFileThatAsksNothingOfTheNetworkAndEscapesWhatItShows) {
  const auto folder = fresh_folder("whole");
  ReportSink sink({.page = folder / "report.html"});
  for (const auto& event : synthetic_run(write_pixel(folder), "done", 0)) sink.on(event);
  const std::string page = read_text(folder / "report.html");
  for (const char* part : {"http:", "https:", "<link", "@import", "src=\"/", "<script>alert", "<b>hello"}) {
    EXPECT_EQ(count(page, part), 0U) << part;
  }
  EXPECT_EQ(count(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 1U);
  EXPECT_EQ(count(page, "data:image/png;base64,iVBORw0KGgo"), 2U);
  EXPECT_EQ(count(page, "<figure>"), 8U);
  EXPECT_EQ(count(page, "✓ exact"), 1U);
  EXPECT_EQ(count(page, "checkpoint-600"), 2U);
  EXPECT_EQ(count(page, "class=\"banner"), 0U);
}

TEST(Report, ShowsAnErrorInABanner) {
  const auto folder = fresh_folder("failed");
  ReportSink sink({.page = folder / "report.html"});
  for (const auto& event : synthetic_run(write_pixel(folder), "rank 1 <never> entered all_gather", 6)) sink.on(event);
  const std::string page = read_text(folder / "report.html");
  EXPECT_EQ(count(page, "<div class=\"banner bad\">"), 1U);
  EXPECT_EQ(count(page, "<pre>rank 1 &lt;never&gt; entered all_gather</pre>"), 1U);
  EXPECT_EQ(count(page, "failed, exit code 6"), 2U);
}

TEST(Report, IsWrittenAtTheStartAtTheEndAndAtMostEveryPauseBetween) {
  const auto page = fresh_folder("pace") / "report.html";
  double time = 0;
  ReportSink sink({.page = page, .pause_seconds = 10, .now = [&] { return time; }});
  const auto rewritten = [&](const Event& event) {
    std::filesystem::remove(page);
    sink.on(event);
    return std::filesystem::exists(page);
  };
  EXPECT_TRUE(rewritten(RunStarted{}));
  time = 9;
  EXPECT_FALSE(rewritten(StepDone{.step = 1}));
  EXPECT_FALSE(rewritten(EvalDone{.step = 1}));
  time = 10;
  EXPECT_FALSE(rewritten(Notice{"n"}));
  EXPECT_TRUE(rewritten(StepDone{.step = 2}));
  EXPECT_FALSE(rewritten(StepDone{.step = 3}));
  EXPECT_TRUE(rewritten(RunEnded{.outcome = "done"}));
}

TEST(Report, ReadsTheEarlierCurvesOfAResumedRun) {
  const auto folder = fresh_folder("resumed");
  JsonlSink log(folder / "logging.jsonl");
  for (const auto& event : synthetic_run("", "interrupted", 130)) log.on(event);
  ReportSink sink({.page = folder / "report.html", .log = folder / "logging.jsonl"});
  sink.on(RunStarted{.verb = "sft",
                     .plan_json = R"({"options": {"zero": 2, "compute": "float32"}})",
                     .start_step = 200,
                     .max_steps = 600});
  sink.on(CheckpointSaved{.step = 209, .path = "checkpoint-209"});
  sink.on(RunEnded{.outcome = "done", .seconds = 9, .step = 209});
  const std::string page = read_text(folder / "report.html");
  EXPECT_EQ(count(page, "<span>duration since step 200 <b>"), 1U) << "of this start alone";
  EXPECT_EQ(count(page, "<h2>Checkpoints since step 200</h2>"), 1U);
  EXPECT_EQ(count(page, "<span>Steps</span><b>209</b>"), 1U) << "though no record was written there";
  EXPECT_EQ(count(page, "<span>ZeRO <b>zero2</b></span><span>dtype <b>float32</b></span>"), 1U) << "no flag says it";
  EXPECT_EQ(count(page, "step 200\neach record"), 1U);
  EXPECT_EQ(count(page, "step 205"), 0U);
  EXPECT_EQ(count(page, "<title>step 100: "), 2U);  // the evaluation, on the loss and on the accuracy chart
}

TEST(Html, EncodesBase64WithItsPadding) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob\xFF"), "Zm9vYv8=");
}

TEST(Html, InlinesOnlyImagesOfModestSize) {
  const auto folder = fresh_folder("inline");
  const std::string pixel = write_pixel(folder);
  std::ofstream(folder / "page.png") << "<html>";
  EXPECT_TRUE(image_data_uri(pixel, 1000).starts_with("data:image/png;base64,"));
  EXPECT_EQ(image_data_uri(pixel, 10), "");
  EXPECT_EQ(image_data_uri(folder / "page.png", 1000), "");
  EXPECT_EQ(image_data_uri(folder / "none.png", 1000), "");
  EXPECT_EQ(image_mime(std::string("RIFF\x10\0\0\0WEBPVP8 ", 16)), "image/webp");
  EXPECT_EQ(image_mime("\xFF\xD8\xFF\xE0"), "image/jpeg");
}

TEST(Html, EscapesTextForQuotedAttributesToo) {
  EXPECT_EQ(escape_html("a<b>&\"'\x1b\n"), "a&lt;b&gt;&amp;&quot;&#39;\xEF\xBF\xBD\n");
}

TEST(ChartSvg, KeepsPeaksWhenItThinsALongCurve) {
  std::vector<double> y(10'000, 1.0);
  y[7'777] = 50;
  y[3] = -2;
  const auto kept = thin(y, 100);
  EXPECT_LE(kept.size(), 102U);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  for (const size_t index : {size_t{0}, size_t{3}, size_t{7'777}, size_t{9'999}}) {
    EXPECT_TRUE(std::find(kept.begin(), kept.end(), index) != kept.end()) << index;
  }
}

TEST(ChartSvg, PutsRoundNumbersOnAxes) {
  EXPECT_EQ(round_ticks(0, 10, 4), (std::vector<double>{0, 5, 10}));
  EXPECT_EQ(round_ticks(3, 3, 4), (std::vector<double>{3}));
  EXPECT_EQ(short_number(0.0001), "1e-4");
  EXPECT_EQ(short_number(15000), "15K");
  EXPECT_EQ(short_number(0.25), "0.25");
}

TEST(ChartSvg, LeavesAGapForValuesThatAreNotFiniteAndNothingForAnEmptyChart) {
  const double nan = std::nan("");
  const std::string drawn = render_chart({.title = "t", .x = {1, 2, 3, 4}, .series = {{"a", {1, nan, 2, 3}}}});
  EXPECT_EQ(count(drawn, "nan"), 0U);
  const auto path = drawn.substr(drawn.find(" d=\""), 80);
  EXPECT_EQ(count(path.substr(4, path.find('"', 4) - 4), "M"), 2U);
  EXPECT_EQ(render_chart({.title = "t", .x = {1}, .series = {{"a", {nan}}}}), "");
  EXPECT_EQ(render_chart({.title = "t"}), "");
}

TEST(ReportCharts, FollowsTheLossOfAShortRunClosely) {
  RunHistory history;
  for (int64_t step = 1; step <= 4; ++step) history.steps.push_back({.step = step, .loss = step < 4 ? 8.0 : 1.0});
  // Window 3: the newest of four has weight 27 of 27 + 18 + 12 + 8; 8 - 7 * 27 / 65.
  EXPECT_NEAR(smoothed_loss(history).back(), 5.0923076923, 1e-9);
}

TEST(ReportCharts, SmoothsWithoutABiasTowardsZero) {
  const auto y = smoothed({4, 4, std::nan(""), 4}, 0.9);
  for (const double value : y) EXPECT_NEAR(value, 4, 1e-12);
}

}  // namespace
}  // namespace lockstep
