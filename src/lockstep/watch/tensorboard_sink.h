// The curves of a run as a TensorBoard events file.
//
// Example:
//   TensorBoardSink board(output_dir / "runs");   // opens events.out.tfevents.<time>.<host>.<pid>.0 at RunStarted
//   bus.add(board);
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "lockstep/base/event.h"

namespace lockstep {

class TensorBoardSink final : public EventSink {
 public:
  /// Creates `folder` when the run starts. Throws UserError(kCheckpoint) when the file cannot be written.
  explicit TensorBoardSink(std::filesystem::path folder);

  void on(const Event& event) override;
  const std::filesystem::path& path() const { return path_; }  // empty before RunStarted

 private:
  void start(const RunStarted& run);
  void scalar(int64_t step, std::string_view tag, double value);
  void write(std::string_view event);

  std::filesystem::path folder_, path_;
  std::ofstream file_;
};

}  // namespace lockstep
