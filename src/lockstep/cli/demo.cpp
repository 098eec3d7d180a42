#include <filesystem>
#include <iostream>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/foreground.h"
#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/shapes.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {

const char* const demo_summary = "draw shapes, train a small vision-language model on them, measure it, ask it";

namespace {
namespace fs = std::filesystem;

constexpr double kLeastExact = 0.90, kLeastLead = 0.25;  // over the model that sees no image
constexpr int kLeastFresh = 2;                           // of the three questions about new pictures

struct DemoFlags {
  std::string output_dir = "output/demo";
  int nproc = 2;
  int64_t train_rows = 20000, eval_rows = 300, steps = 1500;
  bool quick = false;
};

std::string text_of(int64_t number) { return std::to_string(number); }

/// A verb as a person would type it, shown and run: how the demo uses what people use.
Captured run_verb(const fs::path& executable, const std::vector<std::string>& words, bool capture) {
  std::vector<std::string> argv = {"lockstep"};
  argv.insert(argv.end(), words.begin(), words.end());
  std::cout << "\n$ " << shell_command(argv) << std::endl;
  argv.front() = executable.string();
  return run_in_foreground(argv, capture);
}

void check_ended_well(const std::string& verb, int code, const char* hint = "") {
  if (code == 0) return;
  throw Error(static_cast<ExitCode>(code), fmt::format("the step `lockstep {}` ended with exit code {}", verb, code),
              hint);
}

void run_step(const fs::path& executable, const std::vector<std::string>& words) {
  check_ended_well(words[0], run_verb(executable, words, /*capture=*/false).code, "its message stands above");
}

/// The same, and what it printed, without the end of the line.
std::string capture_step(const fs::path& executable, const std::vector<std::string>& words) {
  Captured done = run_verb(executable, words, /*capture=*/true);
  check_ended_well(words[0], done.code);
  while (done.output.ends_with('\n')) done.output.pop_back();
  return done.output;
}

class Demo {
 public:
  Demo(DemoFlags flags, const Host& host)
      : flags_(std::move(flags)), dir_(flags_.output_dir), executable_(host.executable), env_(host.env) {}
  int run();

 private:
  void make_data();
  void train(const std::string& data, const std::string& out);
  double exact_of(const std::string& run, const std::string& data);
  int ask();
  std::string checkpoint(const std::string& run) const {
    return (dir_ / run / ("checkpoint-" + text_of(flags_.steps))).string();
  }

  DemoFlags flags_;
  fs::path dir_, executable_;
  Env env_;
  ShapesFigures figures_;
};

/// The rows of `from` without their images: the same questions and answers, seen by nobody.
void write_without_images(const fs::path& from, const fs::path& to) {
  const Dataset rows({from.string()}, {.strict = true});
  std::ostringstream out;
  for (int64_t i = 0; i < rows.size(); ++i) {
    Json messages = Json::array();
    const Sample sample = rows.sample(i);
    for (const auto& message : sample.messages) {
      std::string content = message.content;
      for (const std::string mark : {"<image>\n", "<image>"}) {
        for (size_t at = 0; (at = content.find(mark)) != std::string::npos;) content.erase(at, mark.size());
      }
      messages.push_back({{"role", message.role}, {"content", content}});
    }
    out << Json{{"messages", messages}, {"group", sample.group}}.dump() << "\n";
  }
  write_text(to, out.str());
}

void Demo::make_data() {
  require_folder_place("--output_dir", dir_);
  // The demo's own folders, from an earlier run: everything else stays.
  for (const char* part : {"shapes", "model", "run", "blind"}) fs::remove_all(dir_ / part);
  figures_ = write_shapes(dir_ / "shapes", {.train_rows = flags_.train_rows, .eval_rows = flags_.eval_rows});
  for (const char* part : {"train", "eval"}) {
    write_without_images(dir_ / "shapes" / fmt::format("{}.jsonl", part),
                         dir_ / "shapes" / fmt::format("{}_blind.jsonl", part));
  }
  std::cout << fmt::format(
      "{} training and {} evaluation rows with drawn images -> {}\nguessing gives {:.2f}, the most frequent answer of "
      "each group "
      "{:.2f}, of each question {:.2f}\n",
      flags_.train_rows, flags_.eval_rows, (dir_ / "shapes").string(), figures_.uniform, figures_.majority,
      figures_.blind);
  run_step(executable_, {"init", "--family", "llava", "--size", "demo", "--corpus",
                         (dir_ / "shapes" / "train.jsonl").string(), "--output_dir", (dir_ / "model").string()});
}

void Demo::train(const std::string& data, const std::string& out) {
  run_step(executable_, {"sft",
                         "--tuner_type",
                         "full",
                         "--model",
                         (dir_ / "model").string(),
                         "--dataset",
                         (dir_ / "shapes" / data).string(),
                         "--output_dir",
                         (dir_ / out).string(),
                         "--add_version",
                         "false",
                         "--nproc",
                         text_of(flags_.nproc),
                         "--deepspeed",
                         "zero3",
                         "--torch_dtype",
                         multiplies_bfloat16(env_) ? "bfloat16" : "float32",
                         "--freeze_vit",
                         "false",
                         "--freeze_aligner",
                         "false",
                         "--max_steps",
                         text_of(flags_.steps),
                         "--per_device_train_batch_size",
                         "16",
                         "--gradient_accumulation_steps",
                         "1",
                         "--learning_rate",
                         "1e-3",
                         "--warmup_ratio",
                         "0.05",
                         "--gradient_checkpointing",
                         "false",
                         "--save_steps",
                         text_of(flags_.steps),
                         "--logging_steps",
                         "50"});
}

double Demo::exact_of(const std::string& run, const std::string& data) {
  const Captured done = run_in_foreground(
      {executable_.string(), "eval", "--model", run, "--val_dataset", (dir_ / "shapes" / data).string(), "--nproc",
       text_of(flags_.nproc), "--per_device_eval_batch_size", "32", "--max_new_tokens", "8", "--show", "0", "--json"},
      /*capture=*/true);
  check_ended_well("eval", done.code);
  const Json result = parse_json(done.output, "the evaluation");
  std::string groups;
  for (const auto& [name, share] : result["groups"].items())
    groups += fmt::format("  {} {:.2f}", name, share.get<double>());
  std::cout << fmt::format("exact answers on {} rows: {:.3f}{}\n", result["answered_rows"].get<int64_t>(),
                           result["exact_match"].get<double>(), groups);
  return result["exact_match"].get<double>();
}

/// Three pictures that are in no data set; how many answers are what was drawn.
int Demo::ask() {
  struct Question {
    const char* name;
    std::vector<DrawnShape> shapes;
    const char *text, *answer;
  };
  const std::vector<Question> questions = {
      {"one", {{1, 0, 0}, {0, 2, 4}}, "What colour is the square?", "red"},
      {"two", {{0, 1, 2}, {2, 3, 6}, {3, 4, 4}}, "How many shapes are there?", "three"},
      {"three", {{2, 5, 8}, {3, 1, 3}}, "What shape is orange?", "triangle"}};
  int right = 0;
  for (const auto& question : questions) {
    const fs::path image = dir_ / "shapes" / fmt::format("fresh_{}.png", question.name);
    write_text(image, encode_png(draw_shapes(question.shapes, 48, {115, 115, 115})));
    const std::string answer = capture_step(
        executable_, {"infer", "--model", checkpoint("run"), "--image", image.string(), "--prompt", question.text});
    const bool is_right = answer == question.answer;
    right += is_right ? 1 : 0;
    std::cout << answer << (is_right ? "" : fmt::format("   (it is {})", question.answer)) << "\n";
  }
  return right;
}

int Demo::run() {
  make_data();
  const auto begun = Clock::now();
  train("train.jsonl", "run");
  const double train_seconds = seconds_since(begun);
  const double exact = exact_of(checkpoint("run"), "eval.jsonl");
  std::cout
      << "\nThe same questions, answers and steps without the images, as a measure of what the words alone give:\n";
  train("train_blind.jsonl", "blind");
  const double blind = exact_of(checkpoint("blind"), "eval_blind.jsonl");
  const int fresh = ask();
  const bool ok = flags_.quick || (exact >= kLeastExact && blind <= exact - kLeastLead && fresh >= kLeastFresh);
  std::cout << fmt::format("\ndemo {} exact={:.2f} chance={:.2f} text_only={:.2f} fresh={}/3 train_s={:.0f} run={}\n",
                           ok ? "ok" : "missed", exact, figures_.uniform, blind, fresh, train_seconds,
                           (dir_ / "run").string());
  return ok ? 0 : 1;
}

}  // namespace

int run_demo(const Words& args, const Host& host) {
  DemoFlags flags;
  CLI::App app(demo_summary, "lockstep demo");
  app.footer("It ends with one line of figures, and exit code 1 when they are not as good as they should be.");
  app.add_option("--output_dir", flags.output_dir, "data, model and runs; its earlier ones are replaced")
      ->capture_default_str();
  app.add_option("--nproc", flags.nproc, "local ranks")->check(whole_number(1, kMostLocalRanks))->capture_default_str();
  app.add_option("--train_rows", flags.train_rows, "")->check(whole_number(1))->capture_default_str();
  app.add_option("--eval_rows", flags.eval_rows, "")->check(whole_number(1))->capture_default_str();
  app.add_option("--steps", flags.steps, "of training, with images and without")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_flag("--quick", flags.quick, "a few steps, to see that everything runs; the figures are not judged");
  if (!parse_flags(app, args)) return 0;
  if (flags.quick) {
    flags.train_rows = 200;
    flags.eval_rows = 30;
    flags.steps = 8;
  }
  return Demo(flags, host).run();
}

}  // namespace lockstep
