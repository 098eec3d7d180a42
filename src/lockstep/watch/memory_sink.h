// Watches a run's memory: says what people should know as notices, and writes memory.json when the run is over.
//
// Example:
//   MemorySink memory(output_dir / "memory.json", bus);
//   bus.add(memory);
#pragma once

#include <filesystem>
#include <optional>

#include "lockstep/base/event.h"
#include "lockstep/watch/memory_growth.h"
#include "lockstep/watch/memory_warnings.h"

namespace lockstep {

class MemorySink final : public EventSink {
 public:
  /// `notices` must outlive it.
  MemorySink(std::filesystem::path path, const EventBus& notices);

  /// Throws UserError(kCheckpoint) when the file cannot be written.
  void on(const Event& event) override;

 private:
  std::filesystem::path path_;
  const EventBus& notices_;
  MemoryGrowth growth_;
  MemoryWarnings warnings_;
  std::optional<MemoryMeasured> newest_;  // not yet written
};

}  // namespace lockstep
