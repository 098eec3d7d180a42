#include "lockstep/zoo/mrope.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const char* const kGrid = "grid_thw";

using Place = std::array<int64_t, 3>;  // time, row, column

bool has_grid(const MediaBlock& block) { return block.facts.contains(kGrid); }

/// Where a medium's tokens stand, counted from its beginning. Times are cut in float32, as the models were trained with.
std::vector<Place> places_of(const MediaBlock& block, const MropeRules& rules) {
  std::vector<Place> places;
  if (!has_grid(block)) {
    for (int64_t i = 0; i < static_cast<int64_t>(block.places.size()); ++i) places.push_back({i, i, i});
    return places;
  }
  const auto& grid = block.facts.at(kGrid);
  const int64_t high = grid[1] / rules.merge, wide = grid[2] / rules.merge;
  const auto rate = static_cast<float>(rules.tokens_per_second), seconds = static_cast<float>(block.step_seconds);
  for (int64_t t = 0; t < grid[0]; ++t) {
    const auto step = static_cast<float>(t);
    const float moment = seconds <= 0 ? step : rules.seconds_first ? step * seconds * rate : step * (seconds * rate);
    const auto time = static_cast<int64_t>(moment);
    for (int64_t y = 0; y < high; ++y) {
      for (int64_t x = 0; x < wide; ++x) places.push_back({time, y, x});
    }
  }
  return places;
}

/// The three axes of a row in the making.
class Placing {
 public:
  Placing(const Features& features, const MropeRules& rules)
      : media_(features.media), rules_(rules), filled_(filled_by(features.media, features.input_ids.size())) {
    while (places_.size() < filled_.size()) {
      const int block = filled_[places_.size()];
      if (block < 0) {
        add_text();
      } else if (const int sound = woven_with(block); sound >= 0) {
        add_woven(block, sound);
      } else {
        add_medium(media_[static_cast<size_t>(block)], block);
      }
    }
  }

  std::vector<int32_t> axes() const {
    std::vector<int32_t> out;
    for (size_t axis = 0; axis < Place{}.size(); ++axis) {
      for (const Place& place : places_) out.push_back(static_cast<int32_t>(place[axis]));
    }
    return out;
  }

 private:
  void add_text() {
    places_.push_back({next_, next_, next_});
    if (marks_ > 0 && --marks_ > 0) return;  // the first of two that share a position
    ++next_;
  }

  void add(const Place& place, int64_t begin) {
    places_.push_back({begin + place[0], begin + place[1], begin + place[2]});
  }

  void add_medium(const MediaBlock& medium, int block) {
    const std::vector<Place> places = places_of(medium, rules_);
    const bool by_edge = has_grid(medium) && !rules_.behind_time;
    int64_t extent = 0;
    for (const Place& place : places) {
      check(places_.size() < filled_.size() && filled_[places_.size()] == block,
            "every medium stands among the tokens, whole");
      add(place, next_);
      extent = std::max({extent, by_edge ? 0 : place[0] + 1, place[1] + 1, place[2] + 1});
    }
    check(places.size() == medium.places.size(), "every medium stands among the tokens, whole");
    next_ += extent;
  }

  /// The sound that goes with a video, -1 for none.
  int woven_with(int block) const {
    if (media_[static_cast<size_t>(block)].step_seconds <= 0) return -1;
    size_t at = places_.size();
    while (at < filled_.size() && filled_[at] == block) ++at;
    if (at == filled_.size() || filled_[at] < 0 || has_grid(media_[static_cast<size_t>(filled_[at])])) return -1;
    return filled_[at];
  }

  void add_woven(int video, int sound) {
    const size_t here = places_.size();
    if (here >= 2 && filled_[here - 1] < 0 && filled_[here - 2] < 0) {
      places_[here - 1] = places_[here - 2];
      next_ = places_[here - 1].front() + 1;
    }
    const auto moving = places_of(media_[static_cast<size_t>(video)], rules_);
    const auto heard = places_of(media_[static_cast<size_t>(sound)], rules_);
    const int64_t begin = next_;
    size_t seen = 0, listened = 0;
    for (int last = -1; places_.size() < filled_.size(); last = filled_[places_.size() - 1]) {
      const int of = filled_[places_.size()];
      if (of != video && of != sound) break;
      if (of != last) next_ = 0;
      size_t& count = of == video ? seen : listened;
      const auto& places = of == video ? moving : heard;
      check(count < places.size(), "a video and its sound stand among the tokens, whole");
      add(places[count++], begin);
      next_ = std::max(next_, *std::ranges::max_element(places_.back()) + 1);
    }
    check(seen == moving.size() && listened == heard.size(), "a video and its sound stand among the tokens, whole");
    marks_ = 2;
  }

  const std::vector<MediaBlock>& media_;
  const MropeRules& rules_;
  std::vector<int> filled_;
  std::vector<Place> places_;
  int64_t next_ = 0;
  int marks_ = 0;  // text tokens to come that share a position
};

}  // namespace

TextConfig read_mrope_text(const HfConfig& part, const TextDefaults& defaults) {
  TextConfig text = read_text_config(part, defaults);
  if (text.rope.sections.empty()) text.rope.sections = {16, 24, 24};
  const int64_t pairs = std::accumulate(text.rope.sections.begin(), text.rope.sections.end(), int64_t{0});
  const bool negative = std::ranges::any_of(text.rope.sections, [](int64_t size) { return size < 0; });
  if (negative || pairs != text.head_dim / 2 || text.rope.sections.size() % 3 != 0) {
    throw checkpoint_error(
        fmt::format("{}: mrope_section: expected sections for three axes that sum up to {} (half a head), "
                    "found a sum of {} in {}",
                    part.where(), text.head_dim / 2, pairs, text.rope.sections.size()));
  }
  return text;
}

void set_mrope_positions(Features& features, const MropeRules& rules) {
  if (std::ranges::any_of(features.media, has_grid)) features.positions = Placing(features, rules).axes();
}

}  // namespace lockstep
