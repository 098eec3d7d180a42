#include "lockstep/tasks/quantise_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/session/quantising.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/tasks/copy_model.h"
#include "lockstep/tasks/new_folder.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

Tensor tensor_of(const std::vector<float>& map) { return from_values(map, {static_cast<int64_t>(map.size())}); }

class Quantiser {
 public:
  explicit Quantiser(const QuantiseOptions& options)
      : options_(options),
        folder_(options.model),
        weights_(open_weights(folder_.family, folder_.config)),
        keys_(KeyMap::match(folder_.model, weights_)),
        naming_(naming_of_adapters(folder_.model, keys_.dialect())),
        format_(options.quant.format(folder_.dtype_of_config())) {
    if (options.verify) verify_files(weights_.dir(), weights_.files());
    if (weights_.borrows()) {
      throw usage_error("--model: its tower stands in another folder, which its codes would not",
                        "save a checkpoint that holds its tower itself");
    }
  }

  void write(const fs::path& dir) {
    choose();
    SafetensorsWriter writer(dir, specs(), {.max_shard_bytes = options_.max_shard_bytes});
    for (const auto& spec : weights_.specs()) {
      if (chosen_.contains(spec.name)) {
        format_.four_bits() ? write_four_bits(spec, writer) : write_rows(spec, writer);
      } else {
        copy(spec, writer);
      }
    }
    writer.finish();
    write_files(dir);
  }

  const QuantisedModel& made() const { return made_; }

 private:
  /// Tensors of the files: those all of whose parts are to be codes, and matrices that nothing is computed with.
  void choose() {
    const auto quantised = quantisation_for(folder_, options_.quant, format_.dtype, &weights_, &keys_);
    std::set<std::string> kept;
    const auto look = [&](const std::string& key, bool codes) {
      (codes ? chosen_ : kept).insert(keys_.on_disk(key).name);
    };
    for (const auto& block : folder_.model.blocks) {
      for (const auto& spec : block->params()) {
        if (spec.tied) continue;
        for (const auto& source : spec.sources) look(source.key, quantised->format_of(source.key).has_value());
      }
    }
    if (options_.quant.skip == std::vector<std::string>{"none"}) {  // else they are the tower's, which stays
      for (const auto& source : folder_.model.unused) {
        const bool matrix = source.shape.size() == 2 && source.key.ends_with(".weight");
        look(source.key, matrix && source.key.find("embed") == std::string::npos);
      }
    }
    for (const auto& name : kept) chosen_.erase(name);
  }

  // --- tensors ---

  std::vector<TensorSpec> specs() {
    std::vector<TensorSpec> out;
    for (const auto& spec : weights_.specs()) {
      made_.bytes_before += spec.bytes();
      const size_t first = out.size();
      if (!chosen_.contains(spec.name)) {
        out.push_back(spec);
      } else {
        add_codes(spec, out);
        ++made_.matrices;
      }
      for (size_t i = first; i < out.size(); ++i) made_.bytes += out[i].bytes();
    }
    return out;
  }

  void add_codes(const TensorSpec& spec, std::vector<TensorSpec>& out) const {
    const QuantLayout layout = QuantLayout::of(format_, spec.shape);
    if (!format_.four_bits()) {
      out.push_back({spec.name, Dtype::kI8, spec.shape});
      out.push_back({module_of(spec.name) + ".SCB", Dtype::kF32, {layout.num_scales}});
      out.push_back({module_of(spec.name) + ".weight_format", Dtype::kU8, {}});
      return;
    }
    out.push_back({spec.name, Dtype::kU8, {layout.code_bytes, 1}});
    out.push_back({spec.name + ".absmax", format_.nested ? Dtype::kU8 : Dtype::kF32, {layout.num_scales}});
    out.push_back({spec.name + ".quant_map", Dtype::kF32, {16}});
    if (format_.nested) {
      out.push_back({spec.name + ".nested_absmax", Dtype::kF32, {layout.num_nested}});
      out.push_back({spec.name + ".nested_quant_map", Dtype::kF32, {256}});
    }
    // The offset stands in it with as many digits as it takes.
    out.push_back({state_name(spec), Dtype::kU8, {static_cast<int64_t>(state_of(spec, offset_of(spec)).size())}});
  }

  static std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }
  std::string state_name(const TensorSpec& spec) const {
    return fmt::format("{}.quant_state.bitsandbytes__{}", spec.name, quant_kind_name(format_.kind));
  }

  std::vector<uint8_t> codes_of(const TensorSpec& spec, int64_t begin, int64_t end) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(end - begin));
    const auto values = [&](int64_t first, std::span<float> x) {
      weights_.read_flat(spec.name, first, view_memory(x.data(), {static_cast<int64_t>(x.size())}, Dtype::kF32));
    };
    quantise(format_, spec.shape, values, begin, bytes);
    return bytes;
  }

  float offset_of(const TensorSpec& spec) const {
    if (!format_.nested) return 0;
    const QuantLayout layout = QuantLayout::of(format_, spec.shape);
    const int64_t at = layout.nested_at + layout.num_nested * 4;
    const std::vector<uint8_t> bytes = codes_of(spec, at, at + 4);
    return *reinterpret_cast<const float*>(bytes.data());
  }

  /// As Python spells it.
  std::string state_of(const TensorSpec& spec, float offset) const {
    std::string nested;
    if (format_.nested) {
      nested = fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                           QuantLayout::kNested, Json(static_cast<double>(offset)).dump());
    }
    return fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}]{}}})",
                       quant_kind_name(format_.kind), QuantLayout::kBlock, torch_dtype_name(format_.dtype),
                       fmt::join(spec.shape, ", "), nested);
  }

  void write_four_bits(const TensorSpec& spec, SafetensorsWriter& writer) {
    const QuantLayout layout = QuantLayout::of(format_, spec.shape);
    std::vector<uint8_t> all = codes_of(spec, 0, layout.bytes);
    const auto put = [&](const std::string& name, int64_t at, int64_t count, Dtype dtype) {
      writer.write_flat(name, 0, view_memory(all.data() + at, {count}, dtype));
    };
    put(spec.name, 0, layout.code_bytes, Dtype::kU8);
    put(spec.name + ".absmax", layout.scales_at, layout.num_scales, format_.nested ? Dtype::kU8 : Dtype::kF32);
    writer.write(spec.name + ".quant_map", tensor_of(quant_map(format_.kind)));
    float offset = 0;
    if (format_.nested) {
      put(spec.name + ".nested_absmax", layout.nested_at, layout.num_nested, Dtype::kF32);
      writer.write(spec.name + ".nested_quant_map", tensor_of(nested_quant_map()));
      offset = *reinterpret_cast<const float*>(all.data() + layout.nested_at + layout.num_nested * 4);
    }
    std::string state = state_of(spec, offset);
    writer.write_flat(state_name(spec), 0, view_memory(state.data(), {static_cast<int64_t>(state.size())}, Dtype::kU8));
    tell(layout.bytes);
  }

  void write_rows(const TensorSpec& spec, SafetensorsWriter& writer) {
    const QuantLayout layout = QuantLayout::of(format_, spec.shape);
    std::vector<uint8_t> all = codes_of(spec, 0, layout.bytes);
    writer.write_flat(spec.name, 0, view_memory(all.data(), {layout.code_bytes}, Dtype::kI8));
    writer.write_flat(module_of(spec.name) + ".SCB", 0,
                      view_memory(all.data() + layout.scales_at, {layout.num_scales}, Dtype::kF32));
    writer.write(module_of(spec.name) + ".weight_format", zeros({}, Dtype::kU8));
    tell(layout.bytes);
  }

  void copy(const TensorSpec& spec, SafetensorsWriter& writer) {
    copy_tensor(weights_, spec, writer);
    tell(spec.bytes());
  }

  void tell(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(std::min(done_, made_.bytes), made_.bytes);
  }

  // --- files beside the weights ---

  /// Names that stand for all modules which are kept as they are and for no other: as short as can be.
  std::vector<std::string> skipped() const {
    std::vector<ModuleOfModel> modules = modules_of(folder_.model, naming_);
    std::vector<std::string> codes, out;
    const auto is_codes = [&](const ModuleOfModel& module) {
      const ParamSpec& spec = folder_.model.blocks[module.block]->params()[module.param];
      return !spec.tied && chosen_.contains(keys_.on_disk(spec.sources[module.first_source].key).name);
    };
    for (const auto& module : modules) {
      if (is_codes(module)) codes.push_back(module.name + ".");
    }
    for (const auto& module : modules) {
      if (is_codes(module) || module.table) continue;
      for (size_t dot = module.name.find('.');; dot = module.name.find('.', dot + 1)) {
        const std::string prefix = module.name.substr(0, dot);
        const bool clean =
            std::ranges::none_of(codes, [&](const auto& name) { return name.starts_with(prefix + "."); });
        if (clean && std::ranges::find(out, prefix) == out.end()) out.push_back(prefix);
        if (clean || dot == std::string::npos) break;
      }
    }
    return out;
  }

  Json said() const {
    const bool four = format_.four_bits();
    return {{"quant_method", "bitsandbytes"},
            {"_load_in_4bit", four},
            {"_load_in_8bit", !four},
            {"load_in_4bit", four},
            {"load_in_8bit", !four},
            {"bnb_4bit_quant_type", four ? std::string(quant_kind_name(format_.kind)) : "fp4"},
            {"bnb_4bit_use_double_quant", format_.nested},
            {"bnb_4bit_compute_dtype", torch_dtype_name(options_.compute.value_or(folder_.dtype_of_config()))},
            {"bnb_4bit_quant_storage", "uint8"},
            {"llm_int8_enable_fp32_cpu_offload", false},
            {"llm_int8_has_fp16_weight", false},
            {"llm_int8_skip_modules", skipped()},
            {"llm_int8_threshold", 6.0}};
  }

  void write_files(const fs::path& dir) {
    SideFiles files = folder_.side_files(/*whole=*/false);
    made_.large = large_side_files(files);
    for (auto& file : files) {
      auto* text = std::get_if<std::string>(&file.bytes);
      if (file.name != "config.json" || text == nullptr) continue;
      Json config = parse_json(*text, "config.json");
      config["quantization_config"] = said();
      *text = config.dump(2) + "\n";
    }
    write_side_files(files, std::nullopt, dir);
  }

  const QuantiseOptions& options_;
  ModelFolder folder_;
  Weights weights_;
  KeyMap keys_;
  Dialect naming_;
  QuantFormat format_;
  std::set<std::string> chosen_;  // of the files' tensors
  QuantisedModel made_;
  int64_t done_ = 0;
};

}  // namespace

QuantisedModel quantise_model(const QuantiseOptions& options) {
  if (!options.quant.asked()) throw usage_error("--quant_bits is required: 4 or 8", "--quant_bits 4");
  options.quant.check();
  Quantiser quantiser(options);
  write_new_folder(options.output, [&](const fs::path& dir) { quantiser.write(dir); });
  return quantiser.made();
}

}  // namespace lockstep
