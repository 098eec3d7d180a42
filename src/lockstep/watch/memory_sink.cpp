#include "lockstep/watch/memory_sink.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {

MemorySink::MemorySink(std::filesystem::path path, const EventBus& notices)
    : path_(std::move(path)), notices_(notices) {}

void MemorySink::on(const Event& event) {
  if (const auto* memory = std::get_if<MemoryMeasured>(&event)) {
    newest_ = *memory;
    if (!memory->last) {
      for (const auto& text : growth_.add(*memory)) notices_.emit(Notice{text});
    }
    for (const auto& text : warnings_.add(*memory)) notices_.emit(Notice{text});
  }
  if (std::holds_alternative<RunEnded>(event) && newest_) {  // also after an error
    write_json(path_, memory_json(*newest_));
    newest_.reset();
  }
}

}  // namespace lockstep
