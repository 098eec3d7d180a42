#include "lockstep/infer/dataset_prompts.h"

#include <iterator>
#include <utility>

namespace lockstep {
namespace {

LoaderOptions for_prompts(LoaderOptions options) {
  options.batch_size = 1;
  options.shuffle = false;
  options.prompts = true;
  return options;
}

}  // namespace

DatasetPrompts::DatasetPrompts(const Dataset& dataset, const Processor& processor, LoaderOptions options,
                               Recorder& recorder)
    : loader_(dataset, processor, for_prompts(std::move(options))), recorder_(recorder) {}

std::optional<Prompt> DatasetPrompts::next() {
  const PhaseScope scope(recorder_, Phase::kData, loader_.next_places());
  while (auto loaded = loader_.next()) {
    std::move(loaded->skipped.begin(), loaded->skipped.end(), std::back_inserter(skipped_));
    if (loaded->rows.empty()) continue;
    Features& features = loaded->rows.front();
    const int64_t row = features.sample.row;
    return Prompt{row, std::move(features)};
  }
  return std::nullopt;
}

}  // namespace lockstep
