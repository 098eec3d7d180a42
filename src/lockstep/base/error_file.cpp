#include "lockstep/base/error_file.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

// A second early: torchrun takes the earliest for the cause, and a rank that was stopped is killed while others write theirs.
// Source of the form: torch 2.11 distributed/elastic/multiprocessing/errors/error_handler.py.
void write_error_file(const std::string& path, const std::string& message) {
  const Json record = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr) - 1)}}}}}};
  try {
    write_text(path, record.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception&) {  // the error itself matters more
  }
}

}  // namespace lockstep
