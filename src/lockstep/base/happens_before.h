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

}  // namespace lockstep
