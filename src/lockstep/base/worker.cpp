#include "lockstep/base/worker.h"

#include <utility>

#include <pthread.h>

namespace lockstep {

Worker::Worker(const std::string& name, std::function<void(std::stop_token)> body)
    : thread_([this, name = name.substr(0, 15), body = std::move(body)](std::stop_token stop) {
        pthread_setname_np(pthread_self(), name.c_str());
        try {
          body(std::move(stop));
        } catch (...) {
          error_ = std::current_exception();
        }
      }) {}

Worker::~Worker() = default;

void Worker::request_stop() { thread_.request_stop(); }

void Worker::join() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep
