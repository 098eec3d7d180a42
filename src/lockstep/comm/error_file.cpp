#include "lockstep/comm/error_file.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

// Source of the form: torch 2.11 distributed/elastic/multiprocessing/errors/error_handler.py.
void write_error_file(const std::string& path, const std::string& message) {
  const Json record = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  try {
    write_text(path, record.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception&) {  // the error itself matters more
  }
}

}  // namespace lockstep
