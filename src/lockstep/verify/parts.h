// The parts of `lockstep verify`: each reads one kind of oracle folder and adds rows to the report.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/spec.h"
#include "lockstep/verify/report.h"

namespace lockstep {

using Named = std::map<std::string, Tensor>;
class VerifyModel;

/// reference.safetensors + reference.json, by case: "<case>/in/<name>" and "<case>/out/<name>".
struct Reference {
  std::map<std::string, Named> inputs, outputs;
  Named others;  // names without in or out
};
Reference read_reference(const std::filesystem::path& folder);

/// The same weights as other tools write them stand in checkpoint_<variant>: they are held to the same outputs. A case
/// "<variant>_…" is that variant's alone.
inline const std::string kVariant = "checkpoint_";
std::vector<std::string> variants_of(const std::filesystem::path& folder);
std::string variant_of_case(const std::filesystem::path& folder, const std::string& name);  // "": every checkpoint's

/// checkpoint/ + reference.*: logits, intermediates, loss, gradients, greedy tokens; ids from prompts, pixels from
/// media.
void verify_family(const std::filesystem::path& folder, Dtype compute, VerifyReport& report);
/// Pixels, ids and positions of a family's folder from its media files, and from its "rows" where it has some.
void verify_media(const std::filesystem::path& folder, const Json& meta, const Reference& reference,
                  VerifyReport& report);
/// One case of a family's folder through a model that is loaded.
void verify_case(const std::string& name, const Named& inputs, const Named& outputs, VerifyModel& model, Dtype compute,
                 VerifyReport& report);
/// checkpoint/ + adapters/<kind>: logits, gradients and training as peft recorded them.
void verify_adapters(const std::filesystem::path& folder, Dtype compute, VerifyReport& report);
/// checkpoint/ + quantised/<kind> + adapters/<kind>: codes, values, logits and training as bitsandbytes gives them.
void verify_quantised(const std::filesystem::path& folder, Dtype compute, VerifyReport& report);
/// checkpoint/ + batches + per-step figures and final weights.
void verify_training(const std::filesystem::path& folder, VerifyReport& report);
/// A folder with tokenizer.json, fuzz.jsonl and decode.jsonl.
void verify_tokenizer(const std::filesystem::path& folder, VerifyReport& report);
/// <family>.jinja + <family>.jsonl.
void verify_chat_templates(const std::filesystem::path& folder, VerifyReport& report);
/// images/ + reference.*.
void verify_images(const std::filesystem::path& folder, VerifyReport& report);
/// audio/ + reference.*.
void verify_audio(const std::filesystem::path& folder, VerifyReport& report);

/// Any of the folders above, or a folder of them. What cannot be read at all becomes a row that fails. Throws
/// UserError(kUsage) when there is no case at all.
void verify_any(const std::filesystem::path& folder, Dtype compute, VerifyReport& report);

/// Pixels made of these files: none may differ, unless a file is a JPEG, of which decoders make values that differ by two
/// levels of 255. `std`: the smallest that was divided by.
Tolerance pixel_tolerance(const std::vector<std::string>& files, double std);

}  // namespace lockstep
