#include "lockstep/tasks/unheeded.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Unheeded {
 public:
  std::vector<std::string> words;

  /// Of the flags that follow: whether anything reads them, and why not.
  void unless(bool heeded, std::string why) {
    heeded_ = heeded;
    why_ = std::move(why);
  }
  template <typename Value>
  void look(const char* flag, const Value& said, const Value& usual) {
    if (!heeded_ && said != usual) words.push_back(fmt::format("{} {} has no effect: {}", flag, said, why_));
  }

 private:
  bool heeded_ = true;
  std::string why_;
};

}  // namespace

std::vector<std::string> unheeded_words(const FineTuneOptions& options) {
  const FineTuneOptions &o = options, usual;  // as args.json of another run says them
  Unheeded all;
  if (const std::string words = o.tuner.unheeded(); !words.empty()) all.words.push_back(words);
  all.unless(o.run.adapters.empty(), "the adapter of --adapters has begun");
  all.look("--init_weights", o.tuner.lora.init, usual.tuner.lora.init);
  all.unless(o.tuner.loraplus_ratio != usual.tuner.loraplus_ratio, "it is of LoRA+ (--lorap_lr_ratio 16)");
  all.look("--lorap_emb_lr", o.tuner.table_rate, usual.tuner.table_rate);

  all.unless(o.grouping.packing, "rows are put into no bins (--packing true)");
  all.look("--packing_strategy", o.grouping.packing_strategy, usual.grouping.packing_strategy);
  all.unless(o.grouping.streaming, "it is drawn from all rows (--streaming true)");
  all.look("--shuffle_buffer_size", o.grouping.shuffle_buffer_size, usual.grouping.shuffle_buffer_size);

  all.unless(o.rows.speaks, "no talker is trained");
  all.look("--talker_loss_weight", o.train.talker_loss_weight, usual.train.talker_loss_weight);
  all.unless(o.train.warmup_steps == 0, fmt::format("--warmup_steps {} counts", o.train.warmup_steps));
  all.look("--warmup_ratio", o.train.warmup_ratio, usual.train.warmup_ratio);

  all.unless(o.saves(), "nothing is saved (--save_strategy no)");
  all.look("--save_total_limit", o.save_total_limit, usual.save_total_limit);
  all.look("--save_only_model", o.save_only_model, usual.save_only_model);
  all.look("--create_checkpoint_symlink", o.create_checkpoint_symlink, usual.create_checkpoint_symlink);

  all.unless(o.predict_with_generate, "no answers are made (--predict_with_generate true)");
  all.look("--max_new_tokens", o.max_new_tokens, usual.max_new_tokens);
  all.look("--temperature", o.sampling.temperature, usual.sampling.temperature);
  all.look("--top_k", o.sampling.top_k, usual.sampling.top_k);
  all.look("--top_p", o.sampling.top_p, usual.sampling.top_p);
  all.look("--repetition_penalty", o.sampling.repetition_penalty, usual.sampling.repetition_penalty);
  if (std::ranges::find(o.report_to, "all") != o.report_to.end()) {
    all.words.emplace_back(
        "--report_to all is tensorboard: trackers (wandb, swanlab, mlflow) are fed where they are named");
  }
  return all.words;
}

}  // namespace lockstep
