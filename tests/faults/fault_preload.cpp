// Loaded before lockstep, this makes one rank do something at a file that it opens: FAULT_RANK 1, FAULT_OPEN .png (a part of
// the path; "start": when the program begins, or, in a copy of its launcher, before it connects to anything), FAULT_AFTER 20
// (openings that go well before it), FAULT_TIMES 1, FAULT_DO: sleep:8 (seconds), exit:9, abort, errno:5. The moment of the first one
// is written to FAULT_MARK, by both clocks, in ns. FAULT_ONCE 1: an event that does not come again, whatever is started, while
// FAULT_MARK is there.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

const char* text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

long number_of(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atol(value);
}

bool is_the_rank() {
  const char* rank = std::getenv("RANK");
  return rank != nullptr && std::strcmp(rank, text_of("FAULT_RANK")) == 0;
}

/// Whether it is the first.
bool write_mark() {
  timespec steady{}, wall{};
  ::clock_gettime(CLOCK_MONOTONIC, &steady);
  ::clock_gettime(CLOCK_REALTIME, &wall);
  if (std::FILE* out = std::fopen(text_of("FAULT_MARK"), "wx")) {
    std::fprintf(out, "%lld %lld\n", steady.tv_sec * 1000000000LL + steady.tv_nsec,
                 wall.tv_sec * 1000000000LL + wall.tv_nsec);
    std::fclose(out);
    return true;
  }
  return false;
}

void sleep_seconds(double seconds) {
  timespec left{static_cast<time_t>(seconds),
                static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

/// 0, or the error that the call must end with.
int make_fault() {
  if (!write_mark() && number_of("FAULT_ONCE", 0) != 0) return 0;
  const char* what = text_of("FAULT_DO");
  const char* colon = std::strchr(what, ':');
  const double number = colon == nullptr ? 0 : std::atof(colon + 1);
  if (std::strncmp(what, "sleep", 5) == 0) sleep_seconds(number);
  if (std::strncmp(what, "exit", 4) == 0) ::_exit(static_cast<int>(number));
  if (std::strncmp(what, "abort", 5) == 0) std::abort();
  return std::strncmp(what, "errno", 5) == 0 ? static_cast<int>(number) : 0;
}

int fault_at(const char* path) {
  static std::atomic<long> openings{0};
  const char* part = text_of("FAULT_OPEN");
  if (path == nullptr || *part == '\0' || std::strstr(path, part) == nullptr || !is_the_rank()) return 0;
  const long before = openings.fetch_add(1) - number_of("FAULT_AFTER", 0);
  return before >= 0 && before < number_of("FAULT_TIMES", 1) ? make_fault() : 0;
}

[[gnu::constructor]] void begin() {
  static std::atomic_flag begun;
  if (std::strcmp(text_of("FAULT_OPEN"), "start") == 0 && is_the_rank() && !begun.test_and_set()) make_fault();
}

/// What libc has under `name`, unless this opening is one that goes wrong: then `wrong`, with errno set.
template <class Result, class... Args>
Result opened(const char* name, Result wrong, const char* path, Args... args) {
  if (const int error = fault_at(path); error != 0) {
    errno = error;
    return wrong;
  }
  return reinterpret_cast<Result (*)(Args...)>(::dlsym(RTLD_NEXT, name))(args...);
}

}  // namespace

// libc declares `mode` as a variable argument, which is passed as any other; so <fcntl.h> is not included.
extern "C" {

int connect(int socket, const sockaddr* address, socklen_t bytes) {
  begin();
  return reinterpret_cast<decltype(&connect)>(::dlsym(RTLD_NEXT, "connect"))(socket, address, bytes);
}
int open(const char* path, int flags, mode_t mode) { return opened("open", -1, path, path, flags, mode); }
int open64(const char* path, int flags, mode_t mode) { return opened("open64", -1, path, path, flags, mode); }
int openat(int dir, const char* path, int flags, mode_t mode) {
  return opened("openat", -1, path, dir, path, flags, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
  return opened("fopen", static_cast<std::FILE*>(nullptr), path, path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) {
  return opened("fopen64", static_cast<std::FILE*>(nullptr), path, path, mode);
}
}
