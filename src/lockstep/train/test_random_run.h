// Tests only: what a random run is made of: rows, some of which are not usable, ranks, transport, stage, starts and stops.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/test_processor.h"
#include "lockstep/exec/test_adapters.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/exec/test_towers.h"

namespace lockstep::test {

struct Row {
  Features features;
  bool broken = false;  // the processor refuses it
};

/// One start of a run; all but the last are stopped.
struct Start {
  int64_t batch = 1, accumulation = 1;
  int stop_rank = -1;     // who wishes to stop
  int64_t stop_call = 0;  // when it is asked for the so-manieth time
};

struct Case {
  uint64_t seed = 0;
  int world = 1, stage = 0;
  Transport transport = Transport::kShm;
  Towers towers;
  bool strict = false, workers = false;
  int64_t epochs = 1;
  int64_t fits = 0;  // tokens with padding that fit in memory at once; 0: all
  JobOptions job;
  std::vector<Row> rows;
  std::vector<size_t> broken_lines;  // of the file, before this row: no JSON
  std::vector<Start> starts;

  Model model() const { return towers.model(); }
  bool fit(const std::vector<Features>& some) const {
    size_t longest = 0;
    for (const auto& row : some) longest = std::max(longest, row.input_ids.size());
    return fits == 0 || static_cast<int64_t>(longest * some.size()) <= fits;
  }
  std::string adapters() const {
    if (!job.plan.adapters) return "";
    const LoraConfig& config = job.plan.adapters->config;
    return std::string(", adapters of ") + std::to_string(job.plan.adapters->modules.size()) + " modules" +
           (config.dora ? ", DoRA" : "") + (config.dropout > 0 ? ", dropout" : "") +
           (config.modules_to_save.empty() ? "" : ", with " + config.modules_to_save[0]) + ", bias " + config.bias;
  }
  bool usable(size_t row) const { return !rows[row].broken && fit({rows[row].features}); }
  std::string words() const {
    return "seed " + std::to_string(seed) + ": " + std::to_string(world) + " ranks over " + transport_name(transport) +
           ", zero" + std::to_string(stage) + (job.plan.shared_weights ? " shared" : "") + ", " + towers.words() +
           ", " + std::to_string(rows.size()) + " rows, " + std::to_string(epochs) + " epochs, " +
           std::to_string(starts.size()) + " starts, " + (strict ? "strict" : "skipping") +
           (fits > 0 ? ", " + std::to_string(fits) + " tokens fit" : "") + adapters();
  }
};

/// Adapters on some components, with what else is trained beside them. What is dropped is a row's own in the language model
/// alone: media of a batch stand behind one another.
inline std::shared_ptr<const AdapterLayout> random_adapters(std::mt19937_64& random, const Model& model) {
  const auto one_in = [&](uint64_t n) { return random() % n == 0; };
  AdapterKind kind;
  kind.lora = {.r = static_cast<int64_t>(1 + random() % 4), .alpha = 4, .rslora = one_in(3), .dora = one_in(3)};
  if (one_in(3)) kind.lora.bias = one_in(2) ? "all" : "lora_only";
  kind.lora.lora_bias = !kind.lora.dora && one_in(4);
  kind.lora.targets = named({"all-linear"});
  if (one_in(3)) kind.lora.targets = named({"q_proj", "v_proj", "down_proj"});
  const bool drops = one_in(3);
  if (drops) {
    kind.lora.dropout = 0.25;
    kind.components = {Component::kLlm};
    kind.lora.targets = named({"all-linear"});
  }
  if (one_in(4) && !kind.lora.lora_bias) kind.lora.targets.names.push_back("embed_tokens");
  if (one_in(3)) kind.lora.modules_to_save = {std::array{"norm", "lm_head", "embed_tokens"}.at(random() % 3)};
  if (one_in(3)) kind.lora.rank_pattern = {{"v_proj", 5}};
  if (one_in(4)) kind.loraplus_ratio = 2;
  return adapters_over(model, kind);
}

inline Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto one_in = [&](uint64_t n) { return below(n) == 0; };
  Case c{.seed = seed};
  c.world = static_cast<int>(1 + below(4));
  c.stage = std::array{0, 2, 3}.at(static_cast<size_t>(below(3)));
  c.transport = one_in(3) ? Transport::kGloo : Transport::kShm;
  c.towers = random_towers(random, one_in(2));
  c.strict = one_in(4);
  c.workers = one_in(2);
  c.epochs = 1 + below(3);
  c.job = {.plan = {.world = c.world, .zero = {c.stage}, .compute = Dtype::kF32}, .seed = random()};
  c.job.plan.recompute = one_in(2);
  c.job.plan.kept_blocks = static_cast<int>(below(3));
  if (one_in(4)) c.job.plan.frozen.insert(Component::kVision);
  if (one_in(4)) c.job.plan.frozen.insert(Component::kAudio);
  const int64_t count = 1 + below(18);
  const auto media_percent = static_cast<uint64_t>(below(3) * 30);
  const bool broken = one_in(2);
  for (int64_t i = 0; i < count; ++i) {
    c.rows.push_back({random_mixed_row(random, c.towers, some_of(random, c.towers.holds(), media_percent))});
    c.rows.back().broken = broken && one_in(c.strict ? 12 : 5);
    if (one_in(8)) std::fill(c.rows.back().features.labels.begin(), c.rows.back().features.labels.end(), -100);
    if (broken && !c.strict && one_in(6)) c.broken_lines.push_back(static_cast<size_t>(i));
  }
  if (one_in(2)) c.fits = 12 + below(40);
  for (int64_t stops = below(3); stops >= 0; --stops) {
    c.starts.push_back({.batch = 1 + below(3), .accumulation = 1 + below(3)});
    if (stops == 0) break;
    c.starts.back().stop_rank = static_cast<int>(below(static_cast<uint64_t>(c.world)));
    c.starts.back().stop_call = 1 + below(6);
  }
  if (one_in(2)) {
    c.job.plan.frozen.clear();
    c.job.plan.adapters = random_adapters(random, c.model());
  }
  c.job.plan.shared_weights = c.stage == 3 && one_in(2);
  return c;
}

class CaseProcessor final : public test::FeaturesProcessor {
 public:
  explicit CaseProcessor(const Case& c) : case_(c) {}
  Features train_features(const Sample& sample, const ProcessOptions& /*options*/) const override {
    const Row& row = case_.rows.at(std::stoul(sample.messages.at(0).content));
    if (row.broken) throw data_error(sample.where + ": cannot be processed");
    Features features = row.features;
    features.sample = sample;
    return features;
  }
  int32_t pad_token() const override { return kPadToken; }

 private:
  const Case& case_;
};

/// The rows as a file of a test that goes away.
class File {
 public:
  explicit File(const Case& c)
      : path_(std::filesystem::temp_directory_path() /
              ("lockstep_step_contract_" + std::to_string(::getpid()) + ".jsonl")) {
    std::ofstream out(path_);
    for (size_t i = 0; i < c.rows.size(); ++i) {
      if (std::count(c.broken_lines.begin(), c.broken_lines.end(), i) > 0) out << "{\"query\": \n";
      out << R"({"query": ")" << i << R"(", "response": "x"})"
          << "\n";
    }
  }
  ~File() { std::filesystem::remove(path_); }
  Dataset read() const { return Dataset({path_.string()}, {.strict = false}); }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::test
