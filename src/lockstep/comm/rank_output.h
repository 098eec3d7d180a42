// The output of a rank that does not own the terminal: whole lines, each with the rank's name before it.
#pragma once

#include <string>

namespace lockstep {

/// Reads one pipe without blocking and writes its lines to `target`. Owns the reading end.
class RankOutput {
 public:
  RankOutput(int rank, int read_fd, int target_fd);
  ~RankOutput();
  RankOutput(RankOutput&& other) noexcept;
  RankOutput& operator=(RankOutput&&) = delete;

  int fd() const { return read_fd_; }  // -1 after the end
  void pump();                         // what is there now
  void finish();                       // the last line too, complete or not

 private:
  void write_lines(bool all);

  std::string prefix_, held_;
  int read_fd_, target_fd_;
};

}  // namespace lockstep
