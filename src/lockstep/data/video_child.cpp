#include "lockstep/data/video_child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr rlim_t kMostMemory = rlim_t{8} << 30, kMostCpuSeconds = 4 * 3600;
constexpr size_t kMostSaid = 1024, kLongestLine = 4096;
constexpr int kPipeBytes = 1 << 20, kLookMs = 1000;

/// From outside, so that spawn needs to know nothing of it; the child has done nothing with the film by then.
void limit(pid_t child) {
  const auto set = [&](auto resource, rlim_t most) {
    const rlimit both{most, most};
    ::prlimit(child, resource, &both, nullptr);
  };
  set(RLIMIT_AS, kMostMemory);
  set(RLIMIT_CPU, kMostCpuSeconds);
  set(RLIMIT_FSIZE, 0);  // of files; pipes have no size
  set(RLIMIT_CORE, 0);
}

Child start(const VideoRun& run, int out, int err) {
  sigset_t none;
  ::sigemptyset(&none);
  try {
    Child child = spawn({.argv = run.argv,
                         .in = run.film,
                         .out = out,
                         .err = err,
                         .group = ProcessGroup::kOwn,
                         .ends_with_thread = true,
                         .close_others = true,
                         .default_signals = {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGCHLD},
                         .signal_mask = none});
    limit(child.pid());
    return child;
  } catch (const ExecError& error) {
    throw data_error(fmt::format("{}: {}", run.name, error.message()), "is FFmpeg installed whole? ffmpeg -version");
  }
}

/// What a child says on standard error: its progress, and the rest.
class Said {
 public:
  /// True when the child has come further.
  bool add(std::string_view bytes) {
    bool further = false;
    for (const char c : bytes) {
      if (c == '\n' || c == '\r') {
        further |= end_line();
      } else if (line_.size() < kLongestLine) {
        line_ += c;
      }
    }
    return further;
  }
  void finish() { end_line(); }
  int64_t frames() const { return frames_; }
  std::string text() const { return plain_text(text_, kMostSaid); }

 private:
  bool end_line() {
    const std::string line = std::exchange(line_, "");
    if (!is_progress(line)) {
      if (!line.empty() && text_.size() < kMostSaid) text_ += (text_.empty() ? "" : "; ") + without_address(line);
      return false;
    }
    constexpr std::string_view kFrame = "frame=";
    if (!line.starts_with(kFrame)) return false;
    const int64_t before = frames_;
    std::from_chars(line.data() + kFrame.size(), line.data() + line.size(), frames_);
    return frames_ > before;
  }

  static bool is_progress(std::string_view line) {
    constexpr std::array kKeys = {"frame=",   "fps=",        "stream_",      "bitrate=", "total_size=",
                                  "out_time", "dup_frames=", "drop_frames=", "speed=",   "progress="};
    return line.find('=') != std::string_view::npos &&
           std::ranges::any_of(kKeys, [&](std::string_view key) { return line.starts_with(key); });
  }
  /// "[mov,mp4 @ 0x5562] moov atom not found" -> "moov atom not found".
  static std::string without_address(std::string line) {
    for (size_t end = 0; line.starts_with('[') && (end = line.find("] ")) != std::string::npos;) line.erase(0, end + 2);
    return line;
  }

  std::string line_, text_;
  int64_t frames_ = 0;
};

UserError silent(const VideoRun& run, int64_t frames) {
  return data_error(fmt::format("{}: expected {} to come further, found nothing new for {:g} s, after frame {}",
                                run.name, run.argv[0], std::chrono::duration<double>(run.patience).count(), frames),
                    "does the file lie on storage that hangs? Else it is damaged: leave the row out");
}

/// One read; false at the end. `size`: how many bytes came.
bool read_some(Descriptor& from, std::span<char> buffer, size_t& size) {
  const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
  size = got > 0 ? static_cast<size_t>(got) : 0;
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  from.close();
  return false;
}

}  // namespace

VideoRunResult run_over_video(const VideoRun& run) {
  Pipe out(run.name), err(run.name);
  ::fcntl(out.read.get(), F_SETPIPE_SZ, kPipeBytes);
  Child child = start(run, out.write.get(), err.write.get());
  for (Pipe* pipe : {&out, &err}) {
    pipe->write.close();
    ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  }
  Said said;
  std::vector<char> buffer(size_t{1} << 18);
  Deadline deadline(run.patience);
  // Its pipes first; then, as a child may close them and stay, its end.
  for (bool open = true; open || !child.ended(); open = out.read.is_open() || err.read.is_open()) {
    std::array<pollfd, 2> fds = {{{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    (void)::poll(fds.data(), fds.size(), open ? kLookMs : 1);
    size_t size = 0;
    if (fds[0].revents != 0 && read_some(out.read, buffer, size) && size > 0) {
      run.take({buffer.data(), size});
      deadline = Deadline(run.patience);
    }
    if (fds[1].revents != 0 && read_some(err.read, buffer, size) && said.add({buffer.data(), size})) {
      if (run.progress) run.progress(said.frames());
      deadline = Deadline(run.patience);
    }
    if (deadline.passed()) throw silent(run, said.frames());
  }
  said.finish();
  return {.status = child.wait(), .frames = said.frames(), .said = said.text()};
}

}  // namespace lockstep
