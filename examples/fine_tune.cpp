// Fine-tunes a model and watches the loss: the run ends early when it is low enough.
//
//   fine_tune MODEL ROWS.jsonl OUTPUT [LOSS]
#include <cstdlib>
#include <iostream>
#include <memory>

#include <lockstep/lockstep.h>

using namespace lockstep;

/// Called at every logging step, on the rank that reports.
class Watch final : public EventSink {
 public:
  explicit Watch(double enough) : enough_(enough) {}
  void on(const Event& event) override {
    if (const auto* notice = std::get_if<Notice>(&event)) std::cerr << "note: " << notice->text << "\n";
    const auto* step = std::get_if<StepDone>(&event);
    if (step == nullptr) return;
    std::cout << "step " << step->step << " of " << step->max_steps << ": loss " << step->loss << std::endl;
    reached_ = reached_ || step->loss <= enough_;
  }
  bool reached() const { return reached_; }

 private:
  double enough_;
  bool reached_ = false;
};

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "fine_tune MODEL ROWS.jsonl OUTPUT [LOSS]\n";
    return 2;
  }
  const Env env = Env::process();  // under torchrun, Slurm or mpirun this process is one of their ranks
  const auto recorder = std::make_shared<Recorder>();
  return rank_main("fine_tune", env, *recorder, [&] {
    Watch watch(argc > 4 ? std::atof(argv[4]) : 0);
    EventBus events;
    FineTuneOptions options{.run = {.model = argv[1], .zero = {3}}, .dataset = {argv[2]}, .output_dir = argv[3]};
    options.train.num_train_epochs = 1;
    options.train.learning_rate = 1e-3;
    options.train.logging_steps = 1;
    options.stop_wanted = [&] { return watch.reached(); };  // a checkpoint is saved, and the run ends

    Job job = start_job(options.run, env, {.program = "fine_tune", .recorder = recorder});
    if (job.reports()) events.add(watch);
    const FineTuned done = fine_tune(job, options, events);
    if (job.reports()) std::cout << done.steps << " steps -> " << done.last_checkpoint << "\n";
    return 0;
  });
}
