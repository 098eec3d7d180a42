// A named thread that joins in its destructor and hands its exception to whoever joins it.
//
// Example:
//   Worker reader("reader", [&](std::stop_token stop) { while (!stop.stop_requested()) fill(queue); });
//   reader.join();   // rethrows what the thread threw
#pragma once

#include <exception>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace lockstep {

class Worker {
 public:
  Worker(const std::string& name, std::function<void(std::stop_token)> body);
  ~Worker();  // requests stop and joins; an exception nobody asked for is dropped here
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void request_stop();
  void join();  // joins and rethrows

 private:
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace lockstep
