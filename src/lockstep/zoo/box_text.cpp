#include "lockstep/zoo/box_text.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image.h"
#include "lockstep/zoo/regularized_media.h"
#include "lockstep/zoo/spelled_text.h"

namespace lockstep {
namespace {

using Edges = std::array<int64_t, 2>;

/// Edges of the row's pictures, each opened once.
class PictureEdges {
 public:
  explicit PictureEdges(const Sample& sample) : sample_(sample) {}
  Edges of(size_t image) {
    const auto found = known_.find(image);
    if (found != known_.end()) return found->second;
    if (image >= sample_.images.size()) {
      throw data_error(
          fmt::format("{}: field \"objects.image_id\": expected a picture of the row, {} of them, found "
                      "number {}",
                      sample_.where, sample_.images.size(), image));
    }
    const Image picture = load_image(sample_.images[image], sample_.where);
    return known_[image] = {picture.width, picture.height};
  }

 private:
  const Sample& sample_;
  std::map<size_t, Edges> known_;
};

std::string points(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2)
    out += fmt::format("{}({},{})", out.empty() ? "" : ",", numbers[i], numbers[i + 1]);
  return out;
}

/// As Python prints a list of them.
std::string list_text(const std::vector<int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

}  // namespace

BoxRules qwen_boxes(BoxUnit unit) {
  return {
      .unit = unit,
      .ref = [](const std::string& ref,
                bool plain) { return plain ? ref : "<|object_ref_start|>" + ref + "<|object_ref_end|>"; },
      .box = [](const std::vector<int64_t>& numbers,
                bool plain) { return plain ? list_text(numbers) : "<|box_start|>" + points(numbers) + "<|box_end|>"; }};
}

void fill_boxes(Sample& sample, const BoxRules& rules, const MediaOptions& options) {
  if (sample.objects.empty()) return;
  const RowObjects& objects = sample.objects;
  const BoxUnit unit = options.box_unit == BoxUnit::kOfFamily ? rules.unit : options.box_unit;
  PictureEdges edges(sample);
  // Source: ms-swift 4.6 template/base.py normalize_bbox; Python's round() goes to even.
  const auto numbers_of = [&](size_t box) {
    const Edges whole = objects.of_one ? Edges{1, 1} : edges.of(objects.images[box]);
    Edges scale{1000, 1000};
    if (unit == BoxUnit::kPixels) {
      const Edges given = edges.of(objects.images[box]);
      const Edges rescaled = rescaled_edges(given, options);
      scale = rules.resized ? rules.resized(rescaled, options_of_family(options), sample.where) : rescaled;
    }
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < objects.boxes[box].size(); ++i) {
      const double part = objects.boxes[box][i] / static_cast<double>(whole[i % 2]);
      numbers.push_back(std::llrint(part * static_cast<double>(scale[i % 2])));
    }
    return numbers;
  };
  size_t refs = 0, boxes = 0;
  const std::string_view ref_mark = kRefMark, box_mark = kBoxMark;
  for (Message& message : sample.messages) {
    std::string& text = message.content;
    for (size_t at = 0;;) {
      const size_t ref = text.find(ref_mark, at), box = text.find(box_mark, at);
      at = std::min(ref, box);
      if (at == std::string::npos) break;
      const bool is_ref = ref < box;
      if ((is_ref ? refs : boxes) >= (is_ref ? objects.refs.size() : objects.boxes.size())) break;
      std::string made;
      if (is_ref) {
        const std::string& name = objects.refs[refs++];
        made = rules.ref ? rules.ref(name, options.plain_boxes) : name;
      } else {
        const auto numbers = numbers_of(boxes++);
        made = rules.box ? rules.box(numbers, options.plain_boxes) : fmt::format("[{}]", points(numbers));
      }
      text.replace(at, (is_ref ? ref_mark : box_mark).size(), made);
      at += made.size();
    }
  }
}

}  // namespace lockstep
