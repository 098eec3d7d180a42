// Tells the thread sanitizer of an order between threads that it cannot see, because what makes the order (a lock, a queue)
// lies in a library that is not instrumented. Nothing in any other build.
//
// Example:
//   ordered_before(&store);  store->set(key, value);      // one thread
//   store->wait(key);        ordered_after(&store);       // another: what came before the set is seen after the wait
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace lockstep {

/// What this thread did so far happens before what any thread does after ordered_after() of the same address.
inline void ordered_before([[maybe_unused]] const void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(address));
#endif
}

inline void ordered_after([[maybe_unused]] const void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(address));
#endif
}

/// While it lives, what this thread writes belongs to whom it is given to: for a callback that a library keeps and runs
/// elsewhere, whose own memory is read before its body could say ordered_after(). For as few lines as possible.
class GivenAway {
 public:
  GivenAway() {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~GivenAway() {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
  }
  GivenAway(const GivenAway&) = delete;
  GivenAway& operator=(const GivenAway&) = delete;
};

}  // namespace lockstep
