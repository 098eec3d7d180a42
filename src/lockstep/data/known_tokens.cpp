#include "lockstep/data/known_tokens.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/wrapped_processor.h"

namespace lockstep {
namespace {

class KnownTokens final : public WrappedProcessor {
 public:
  KnownTokens(std::unique_ptr<Processor> inner, int64_t vocab) : WrappedProcessor(std::move(inner)), vocab_(vocab) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    return checked(named(sample, [&] { return inner().train_features(sample, options); }), sample);
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    return checked(named(sample, [&] { return inner().prompt_features(sample, options); }), sample);
  }

 private:
  static Features named(const Sample& sample, const std::function<Features()>& process) {
    try {
      return process();
    } catch (Error& e) {
      if (!sample.where.empty() && std::string_view(e.what()).find(sample.where) == std::string_view::npos)
        e.add_frame(sample.where);
      throw;
    }
  }

  Features checked(Features row, const Sample& sample) const {
    if (row.input_ids.empty()) {
      throw data_error(sample.where + ": expected a row of at least one token, found none",
                       "a question that is not empty");
    }
    check_ids(row.input_ids, row, sample, "token", "");
    check_ids(row.labels, row, sample, "label", ", or -100");
    return row;
  }

  /// `none`: where an id may be none, how a person is told so.
  void check_ids(const std::vector<int32_t>& ids, const Features& row, const Sample& sample, const char* what,
                 std::string_view none) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if ((ids[i] >= 0 && ids[i] < vocab_) || (!none.empty() && ids[i] == kNotLearnt)) continue;
      const bool filled = std::ranges::any_of(row.media, [&](const MediaBlock& block) {
        return std::ranges::binary_search(block.places, static_cast<int32_t>(i));
      });
      if (filled) continue;
      throw data_error(fmt::format("{}: {} {} of the row: expected one of the model's {}{}, found {}", sample.where,
                                   what, i + 1, vocab_, none, ids[i]),
                       "are these ids of another tokenizer, or does tokenizer.json have more tokens than the model?");
    }
  }

  int64_t vocab_;
};

}  // namespace

std::unique_ptr<Processor> of_known_tokens(std::unique_ptr<Processor> inner, int64_t vocab) {
  if (vocab <= 0) return inner;
  return std::make_unique<KnownTokens>(std::move(inner), vocab);
}

}  // namespace lockstep
