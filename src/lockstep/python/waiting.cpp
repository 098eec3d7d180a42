#include "lockstep/python/waiting.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <nanobind/nanobind.h>

#include "lockstep/base/error.h"

namespace lockstep::python {
namespace {

std::atomic<std::thread::id> ending{std::thread::id()};  // the thread that ends Python; none before
std::atomic<int> waiting{0};

}  // namespace

Waiting::Waiting() {
  if (called_off()) throw usage_error("this program is about to end: no more work is begun");
  ++waiting;
}
Waiting::~Waiting() { --waiting; }

bool Waiting::called_off() {
  const std::thread::id ends = ending;
  return ends != std::thread::id() && ends != std::this_thread::get_id();
}

void Waiting::call_off_all() {
  constexpr auto kLook = std::chrono::milliseconds(5);
  ending = std::this_thread::get_id();
  while (waiting > 0) {  // with the lock: who was about to wait has begun to
    const nanobind::gil_scoped_release others;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace lockstep::python
