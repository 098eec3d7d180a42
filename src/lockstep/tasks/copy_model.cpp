#include "lockstep/tasks/copy_model.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/tasks/new_folder.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

void copy_tensor(const Weights& weights, const TensorSpec& spec, SafetensorsWriter& writer) {
  constexpr int64_t kAtOnce = int64_t{16} << 20;  // elements
  const int64_t numel = numel_of(spec.shape);
  for (int64_t begin = 0; begin < numel || begin == 0; begin += kAtOnce) {
    const Tensor part = empty({std::min(kAtOnce, numel - begin)}, spec.dtype);
    weights.read_flat(spec.name, begin, part);
    writer.write_flat(spec.name, begin, part);
  }
}

Copied copy_model(const CopyOptions& options) {
  const ModelFolder folder(options.model);
  const Weights weights = open_weights(folder.family, folder.config);
  (void)KeyMap::match(folder.model, weights);  // all of it is there and fits
  if (options.verify) verify_files(weights.dir(), weights.files());
  if (weights.any_quantised()) {
    throw usage_error("--model: its matrices are codes already",
                      "copy the folder, or export the model that they were made of");
  }
  std::vector<TensorSpec> specs;
  Copied all;
  for (const auto& spec : weights.specs()) {
    if (weights.is_borrowed(spec.name)) continue;
    specs.push_back(spec);
    all.bytes += spec.bytes();
  }
  all.tensors = static_cast<int64_t>(specs.size());
  write_new_folder(options.output, [&](const std::filesystem::path& dir) {
    SafetensorsWriter writer(dir, specs, {.max_shard_bytes = options.max_shard_bytes});
    int64_t done = 0;
    for (const auto& spec : specs) {
      copy_tensor(weights, spec, writer);
      done += spec.bytes();
      if (options.progress) options.progress(done, all.bytes);
    }
    writer.finish();
    const SideFiles files = folder.side_files(/*whole=*/false);
    all.large = large_side_files(files);
    write_side_files(files, std::nullopt, dir);
  });
  return all;
}

}  // namespace lockstep
