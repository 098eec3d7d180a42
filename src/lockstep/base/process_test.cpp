#include "lockstep/base/process.h"

#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/worker.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

/// What the script prints, and how it ends.
std::string output_of(SpawnOptions options, ExitStatus* status = nullptr) {
  Pipe out;
  options.out = out.write.get();
  Child child = spawn(options);
  out.write.close();
  std::string text = read_all(out.read.get());
  const ExitStatus end = child.wait();
  if (status != nullptr) *status = end;
  return text;
}

/// Both ways to start a program: through posix_spawn, and through fork.
class Processes : public testing::TestWithParam<bool> {
 protected:
  SpawnOptions options(const std::string& script) const {
    return {.argv = shell(script), .ends_with_thread = GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Processes, testing::Bool(),
                         [](const auto& way) { return way.param ? "ByFork" : "BySystem"; });

TEST_P(Processes, GiveTheirOutputAndTheirEnd) {
  ExitStatus status;
  EXPECT_EQ(output_of(options("echo $0 one; exit 3"), &status), "/bin/sh one\n");
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_EQ(status.shell_code(), 3);
  EXPECT_EQ(output_of(options("kill -TERM $$"), &status), "");
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.shell_code(), 128 + SIGTERM);
}

TEST_P(Processes, HaveTheirOwnNameAndEnvironment) {
  SpawnOptions named = options("echo \"$0 $ONE $HOME\"");
  named.argv[0] = "renamed";
  named.program = "/bin/sh";
  named.environment = {"ONE=1"};
  EXPECT_EQ(output_of(named), "renamed 1 \n");
}

TEST_P(Processes, GetADescriptorThatTheyAreToHave) {
  Pipe pipe;
  SpawnOptions writes =
      options("echo kept > /proc/self/fd/" + std::to_string(pipe.write.get()));  // >&: some shells know one digit
  EXPECT_EQ(output_of(writes), "");
  writes.kept = pipe.write.get();
  Child child = spawn(writes);
  EXPECT_EQ(child.wait().shell_code(), 0);
  pipe.write.close();
  EXPECT_EQ(read_all(pipe.read.get()), "kept\n");
}

TEST_P(Processes, ThatCannotBeExecutedSayWhy) {
  SpawnOptions lost = options("true");
  lost.argv[0] = "/nowhere/program";
  try {
    (void)spawn(lost);
    FAIL();
  } catch (const ExecError& error) {
    EXPECT_EQ(error.number(), ENOENT);
    EXPECT_EQ(error.message(), "/nowhere/program cannot be started: No such file or directory");
  }
  lost.what = "starting it";
  EXPECT_THROW((void)spawn(lost), ExecError);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no process stays";
}

TEST(Process, SaysItsLastWordsInsteadOfThrowing) {
  Pipe err;
  Child child = spawn({.argv = {"/nowhere/program"}, .err = err.write.get(), .last_words = "no such program\n"});
  err.write.close();
  EXPECT_EQ(read_all(err.read.get()), "no such program\n");
  EXPECT_EQ(child.wait().exit_code, 127);
}

TEST_P(Processes, ThatLeadAGroupTakeItAlong) {
  for (const ProcessGroup group : {ProcessGroup::kOwn, ProcessGroup::kOwnSession}) {
    Pipe out;
    SpawnOptions family = options("sleep 60 & echo $!; wait");
    family.group = group;
    family.out = out.write.get();
    Child child = spawn(family);
    out.write.close();
    EXPECT_EQ(::getpgid(child.pid()), child.pid());
    EXPECT_EQ(::getsid(child.pid()) == child.pid(), group == ProcessGroup::kOwnSession);
    EXPECT_FALSE(read_line(out.read.get(), std::chrono::seconds(20)).empty());
    child.signal(SIGKILL);
    EXPECT_EQ(read_all(out.read.get()), "") << "the sleeping one has closed the pipe";
    EXPECT_EQ(child.wait().signal, SIGKILL);
  }
}

TEST_P(Processes, HaveTheSignalsAndDescriptorsThatAreAskedFor) {
  const auto before = std::signal(SIGUSR1, SIG_IGN);
  const Descriptor open(::open("/dev/null", O_RDONLY));
  const Descriptor high(::fcntl(open.get(), F_DUPFD, 9));  // not O_CLOEXEC
  const std::string ends =
      "[ -e /proc/self/fd/" + std::to_string(high.get()) + " ] && echo open; kill -USR1 $$; echo on";
  EXPECT_EQ(output_of(options(ends)), "open\non\n");
  SpawnOptions clean = options(ends);
  clean.close_others = true;
  clean.default_signals = {SIGUSR1};
  EXPECT_EQ(output_of(clean), "");
  clean.signal_mask.emplace();
  ::sigemptyset(&*clean.signal_mask);
  ::sigaddset(&*clean.signal_mask, SIGUSR1);
  EXPECT_EQ(output_of(clean), "on\n");
  std::signal(SIGUSR1, before);
}

TEST_P(Processes, TakeDescriptorsThatStandInEachOthersPlace) {
  Pipe out;
  SpawnOptions crossed = options("echo out; echo err >&2");
  crossed.out = STDERR_FILENO;
  crossed.err = out.write.get();
  Child child = spawn(crossed);
  out.write.close();
  EXPECT_EQ(read_all(out.read.get()), "err\n");
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Process, EndsWithTheThreadThatStartedIt) {
  std::optional<Child> child;
  std::thread([&] { child.emplace(spawn({.argv = shell("exec sleep 60"), .ends_with_thread = true})); }).join();
  EXPECT_EQ(child->wait().signal, SIGKILL);
}

TEST(Process, StaysCountedUntilItIsCollected) {
  Child child = spawn({.argv = shell("exit 5")});
  child.await_end();
  EXPECT_TRUE(child.ended());
  EXPECT_EQ(::kill(child.pid(), 0), 0);
  EXPECT_EQ(child.poll()->exit_code, 5);
  EXPECT_NE(::kill(child.pid(), 0), 0);
  EXPECT_EQ(child.wait().exit_code, 5);
  EXPECT_TRUE(child.ended());
}

TEST(Process, EndsWithItsOwnerUnlessLetGo) {
  pid_t pid = 0;
  {
    Child child = spawn({.argv = shell("exec sleep 60")});
    EXPECT_FALSE(child.poll());
    const Child moved = std::move(child);
    pid = moved.pid();
  }
  EXPECT_NE(::kill(pid, 0), 0);
  {
    Child child = spawn({.argv = shell("exec sleep 60")});
    child.let_go();
    pid = child.pid();
  }
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(Process, LinesAreReadOneByOneAndNotForEver) {
  Pipe pipe;
  const std::string text = "one\n\ntwo";
  ASSERT_EQ(::write(pipe.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const int fd = pipe.read.get();
  EXPECT_EQ(read_line(fd, std::chrono::seconds(20)), "one");
  EXPECT_EQ(read_line(fd, std::chrono::seconds(20)), "");
  EXPECT_EQ(read_line(fd, milliseconds(50)), "two");
  const auto begun = Clock::now();
  EXPECT_EQ(read_line(fd, milliseconds(50)), "");
  EXPECT_GE(seconds_since(begun), 0.04);
  pipe.write.close();
  EXPECT_EQ(read_line(fd, std::chrono::seconds(20)), "");
}

TEST(Process, MayBeACopyOfThisOne) {
  const Pipe kept, closed;
  const int open = ::dup(kept.read.get());  // not closed by exec
  Pipe out;
  Child child = spawn({.out = out.write.get(), .body = [&] {
                         const bool as_exec = ::fcntl(open, F_GETFD) >= 0 && ::fcntl(closed.read.get(), F_GETFD) < 0;
                         const ssize_t said = ::write(STDOUT_FILENO, as_exec ? "yes" : "no", as_exec ? 3 : 2);
                         return said > 0 ? 41 : 1;
                       }});
  out.write.close();
  EXPECT_EQ(read_all(out.read.get()), "yes");
  EXPECT_EQ(child.wait().exit_code, 41);
  ::close(open);
}

TEST(Process, OfACopyNothingUnwindsIntoThisOne) {
  Child child = spawn({.body = []() -> int { throw Error(ExitCode::kInternal, "lost"); }});
  EXPECT_EQ(child.wait().signal, SIGABRT);
}

TEST(Process, CountsItsThreads) {
  EXPECT_FALSE([] {
    Worker other("other", [](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    return has_one_thread();
  }());
}

TEST(Process, KnowsItsOwnFile) { EXPECT_EQ(own_executable().filename().string().substr(0, 4), "base"); }

}  // namespace
}  // namespace lockstep
