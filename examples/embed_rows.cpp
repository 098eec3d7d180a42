// One vector for each row of a JSONL file, on as many ranks as are asked for:
//
//   embed_rows MODEL ROWS.jsonl OUTPUT [RANKS]
#include <cstdlib>
#include <iostream>
#include <memory>

#include <lockstep/lockstep.h>

using namespace lockstep;

/// Progress in one line; the task itself prints nothing.
class Progressed final : public EventSink {
 public:
  void on(const Event& event) override {
    if (const auto* notice = std::get_if<Notice>(&event)) std::cerr << "note: " << notice->text << "\n";
    if (const auto* progress = std::get_if<Progress>(&event)) {
      std::cerr << "\r" << progress->done << " of " << progress->total << " rows" << std::flush;
      if (progress->done == progress->total) std::cerr << "\n";
    }
  }
};

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "embed_rows MODEL ROWS.jsonl OUTPUT [RANKS]\n";
    return 2;
  }
  const Env env = Env::process();
  const auto recorder = std::make_shared<Recorder>();  // what this rank does, for the diagnosis of a failure
  return rank_main("embed_rows", env, *recorder, [&] {
    EmbeddingOptions options{.run = {.model = argv[1]}, .dataset = {argv[2]}, .output = argv[3]};
    options.run.nproc = argc > 4 ? std::atoi(argv[4]) : 1;
    options.embedding = {.pooling = Pooling::kMean, .normalize = true};

    LaunchRequest ranks{.argv = {own_executable().string()}, .program = "embed_rows"};
    ranks.argv.insert(ranks.argv.end(), argv + 1, argv + argc);
    if (const auto code = launch_if_asked(ranks, options.run, env)) return *code;  // it has started the ranks

    Job job = start_job(options.run, env, {.program = "embed_rows", .recorder = recorder});
    Progressed progressed;
    EventBus events;
    if (job.reports()) events.add(progressed);
    const Embedded done = embed(job, options, events);
    if (job.reports()) std::cout << done.counts.rows << " rows -> " << done.file.string() << "\n";
    return 0;
  });
}
