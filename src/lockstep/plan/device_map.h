// `--device_map F.json`: a device for every block of a model, from names at any depth of its checkpoint's keys.
//
// Example:
//   {"model.embed_tokens": 0, "model.layers": 0, "model.layers.20.mlp": "cuda:1", "": 1}
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/device_load.h"

namespace lockstep {

/// A line of a device map.
struct DeviceEntry {
  std::string name;  // "": everything
  int device = 0;    // kCpuDevice: the CPU
};

struct DeviceMap {
  std::vector<int> devices;          // of each block of the model
  std::vector<std::string> notices;  // lines that did not get what they say, and why
};

/// The rules, in order:
/// - Names are those of the checkpoint, or those of one of the model's dialects: the spelling in which the fewest names
///   are unknown, then in which the fewest blocks are left without a device.
/// - A block is placed whole. Lines that name it or something inside it ("model.layers.3.mlp") decide, and must agree;
///   else the line of its nearest ancestor does.
/// - A parameter that is stored under another name than its block (the last norm belongs to the head) goes with its
///   block; a line of its own that says otherwise becomes a notice. It decides only where no line covers the block's
///   name: so {"model": 0} suffices for a model whose head is tied.
/// - A block without parameters (rope tables, the merge of media) stands with the next that has some, because it makes
///   what that one reads; a line that says otherwise becomes a notice.
/// Any map is allowed: a device may be come back to.
///
/// Throws UserError(kUsage): unknown names with the nearest real ones, lines that disagree, blocks without a device and
/// what to add. `where` begins the message.
DeviceMap resolve_device_map(const Model& model, const std::vector<DeviceEntry>& entries, const std::string& where);

/// Accelerate's form: {"name": 1 | "cuda:1" | "virtual:1" | "cpu"}, as text that begins with { or as a file's path.
/// Throws UserError(kUsage) as above, and for a name that stands there twice or a device that is not there.
DeviceMap read_device_map(const Model& model, const std::string& text_or_path, int num_devices);

}  // namespace lockstep
