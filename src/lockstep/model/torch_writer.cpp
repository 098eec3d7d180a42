#include "lockstep/model/torch_writer.h"

#include <string_view>

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "lockstep/base/json.h"  // write_text

namespace lockstep {

void write_torch_file(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  c10::Dict<std::string, at::Tensor> all;
  for (const auto& [name, tensor] : tensors) all.insert(name, tensor.contiguous());
  // pickle_save of LibTorch writes the types of a dict beside it, as a function to call: readers of tensors alone refuse that.
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* bytes, size_t size) { pickled.append(bytes, size); }, nullptr, nullptr,
                              nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(all);
  pickler.stop();
  std::string file;
  caffe2::serialize::PyTorchStreamWriter zip([&](const void* bytes, size_t size) {
    file.append(static_cast<const char*>(bytes), size);
    return size;
  });
  zip.writeRecord("data.pkl", pickled.data(), pickled.size());
  constexpr std::string_view kOrder = "little";
  zip.writeRecord("byteorder", kOrder.data(), kOrder.size());
  for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const at::Tensor& tensor = pickler.tensorData()[i];
    zip.writeRecord("data/" + std::to_string(i), tensor.data_ptr(), tensor.nbytes());
  }
  zip.writeEndOfFile();
  write_text(path, file);
}

}  // namespace lockstep
