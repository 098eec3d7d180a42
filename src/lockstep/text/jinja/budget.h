// What one rendering may cost: a template comes with a checkpoint of strangers, and a loop in a loop or a string
// multiplied is as short as any other. Past a limit the rendering ends with a LimitError.
//
// One Budget stands for the rendering of a thread, as Python's recursion limit does: values are compared, printed and
// destroyed far below any function that an argument could reach. Without one, nothing is counted.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/jinja/value.h"

namespace lockstep::jinja {

// Real templates have at most 30 KB, nest 10 blocks and 20 expressions, take less than 100 steps a message and print a
// few times what they are given.
inline constexpr size_t kMaxSource = size_t{256} << 10;  // bytes of a template; its tree takes 200 times that
inline constexpr int kMaxTree = 300;                     // an expression in an expression: the parser recurses
inline constexpr int kMaxBlocks = 200;                   // a block in a block, an elif behind an elif
inline constexpr int kMaxCalls = 1000;                   // evaluations within evaluations, as Python's recursion limit
inline constexpr int kMaxValueDepth = 320;               // a list in a list; above what JSON may bring (JsonLimits)
inline constexpr size_t kMaxSteps = 20'000'000;          // about 3 s
inline constexpr size_t kMaxBytes = size_t{256} << 20;   // made in all, whether or not it is still alive
inline constexpr size_t kBytesPerInput = 64;  // more for each byte that is rendered, so that size is no fault

/// A limit was passed: the template's fault, not the conversation's.
class LimitError : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

class Budget {
 public:
  /// Stands for this thread until its end. `input_bytes`: of what is rendered.
  explicit Budget(size_t input_bytes);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static Budget* current();
  void step(size_t count);
  void make(size_t bytes);
  void enter();
  void leave() { --calls_; }
  /// Emptied at the end: namespaces may hold each other in rings, or in chains too long to destroy one by one.
  void keep(std::shared_ptr<Namespace> space) { spaces_.push_back(std::move(space)); }

 private:
  Budget* const outer_;
  const size_t most_steps_, most_bytes_;
  size_t steps_ = 0, bytes_ = 0;
  int calls_ = 0;
  std::vector<std::shared_ptr<Namespace>> spaces_;
};

/// Each throws LimitError.
void spend_steps(size_t count);
void spend_bytes(size_t bytes);
/// Before a search of `needle` in `text`, which takes their product at worst.
void spend_search(std::string_view text, std::string_view needle);
/// Before `text` is copied.
inline void spend_copy(std::string_view text) { spend_steps(text.size() / 256); }

/// One evaluation within another.
class Deeper {
 public:
  Deeper() : budget_(Budget::current()) {
    if (budget_ != nullptr) budget_->enter();
  }
  ~Deeper() {
    if (budget_ != nullptr) budget_->leave();
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Budget* budget_;
};

}  // namespace lockstep::jinja
