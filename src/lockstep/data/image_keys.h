// What the image processors of all families share: typed reads of preprocessor_config.json, and levels of a pixel made
// numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/image.h"

namespace lockstep {

/// Reads keys of one object; a key that is absent or null leaves the default. Throws UserError(kCheckpoint) naming
/// `where`, the key, expected and found.
class ImageKeys {
 public:
  ImageKeys(const Json& json, const std::string& where);  // borrows both

  const Json* find(const char* key) const;
  UserError wrong(const char* key, const char* expected, const Json& found) const;
  void read(const char* key, bool& value) const;
  void read(const char* key, double& value) const;
  void read(const char* key, std::array<double, 3>& value) const;
  /// A number of pixels from 1; `found` may stand inside the value of `key`.
  int64_t pixels(const char* key, const Json& found, int64_t most = 65536) const;
  /// A filter by Pillow's number; absent: left alone.
  void read(const char* key, Resample& value) const;
  /// Pillow where "use_fast" is false or "image_processor_type" ends in "Pil", torchvision where "use_fast" is true; else
  /// left alone.
  void read(ImageBackend& value) const;

 private:
  const Json& json_;
  const std::string& where_;
};

/// How a level of 0 to 255 becomes a number of one channel, in the arithmetic of the Hugging Face processors.
struct PixelScale {
  ImageBackend backend = ImageBackend::kTorchvision;
  bool do_rescale = true, do_normalize = true;
  double rescale_factor = 1.0 / 255.0;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};  // CLIP's
  std::array<double, 3> std = {0.26862954, 0.26130258, 0.27577711};

  /// The backend, do_rescale, rescale_factor, do_normalize, image_mean, image_std.
  void read_scale(const ImageKeys& keys);
  /// One of 256 values each. Pillow's way scales in double and does the rest in float, as NumPy does it; torchvision's
  /// scales mean and deviation in their stead, all in float.
  std::array<std::array<float, 256>, 3> tables() const;
};

}  // namespace lockstep
