#include "lockstep/tasks/part_alone.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/model/torch_writer.h"
#include "lockstep/model/weights.h"

namespace lockstep {

void write_alone(const Family& family, const std::filesystem::path& checkpoint, const std::filesystem::path& dir) {
  const auto& alone = family.elsewhere.alone;
  const Weights weights = Weights::open(checkpoint);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& spec : weights.specs()) {
    if (spec.name.starts_with(alone.names)) tensors.emplace_back(spec.name, weights.read(spec.name));
  }
  write_torch_file(dir / alone.file, tensors);
}

}  // namespace lockstep
