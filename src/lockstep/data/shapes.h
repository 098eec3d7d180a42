// The demonstration's data set: drawn images of coloured shapes, questions about them, and a few questions without
// image.
//
// One to three shapes of different kinds and colours stand in cells of a 3x3 grid, on a plain background, so that every
// question has one answer. Groups: colour, kind, count, position, text. Training rows come in all three row forms. A
// row's metadata names its scene: what is drawn and where.
//
// Example:
//   const ShapesFigures figures = write_shapes("shapes", {.train_rows = 4000, .eval_rows = 300, .seed = 42});
//   // shapes/train.jsonl, shapes/eval.jsonl, shapes/images/*.png|*.jpg, shapes/figures.json
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep {

struct ShapesOptions {
  int64_t train_rows = 4000, eval_rows = 300;
  uint64_t seed = 42;
  int max_shapes = 3;        // 1 to 3
  double text_share = 0.10;  // of the rows have no image; the others are shared out among the four groups
};

/// What can be had without understanding: the share of exact answers on eval.jsonl by a guesser that …
struct ShapesFigures {
  double uniform = 0;   // … knows the group, and picks evenly among its possible answers (expected)
  double majority = 0;  // … gives each group's most frequent answer in train.jsonl
  double blind =
      0;  // … gives each question's most frequent answer in train.jsonl: the best a model without eyes can do
};

/// Writes the data set. No scene of the evaluation (the shapes, their colours and cells) is in the training rows, under
/// any question; the text questions are a closed set and occur in both. Same options, same bytes. Throws UserError when the folder cannot be written.
ShapesFigures write_shapes(const std::filesystem::path& dir, const ShapesOptions& options);

/// What is drawn: kind and colour index the lists below; the cell counts from the top left, row by row.
struct DrawnShape {
  int kind = 0, colour = 0, cell = 0;
};
inline constexpr std::array<const char*, 4> kShapeKinds = {"circle", "square", "triangle", "cross"};
inline constexpr std::array<const char*, 6> kShapeColours = {"red", "green", "blue", "yellow", "purple", "orange"};
inline constexpr std::array<const char*, 9> kShapePlaces = {
    "top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right"};

/// A square picture, `edge` pixels wide.
Image draw_shapes(const std::vector<DrawnShape>& shapes, int64_t edge, std::array<uint8_t, 3> background);

}  // namespace lockstep
