#include "lockstep/infer/row_journal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <xxhash.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/together.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kMagic = 0x31574F52'4B434F4CULL;  // "LOCKROW1"
constexpr const char *kIdentity = "run.json", *kLock = ".lock";

struct RecordHead {
  uint64_t magic = kMagic;
  int64_t row = 0, size = 0;
  uint64_t checksum = 0;
};

uint64_t checksum_of(std::string_view bytes, int64_t row) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), static_cast<uint64_t>(row));
}

void refuse_another_run(const fs::path& dir, const Json& mine) {
  const std::string differences = identity_difference(read_json(dir / kIdentity), mine);
  if (differences.empty()) return;
  throw UserError(ExitCode::kUsage,
                  fmt::format("{} holds the unfinished rows of another run: {}", dir.string(), differences),
                  "go on with the flags of that run, name another output, or give --overwrite true to start over");
}

/// All but its lock.
void empty(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename() != kLock) fs::remove_all(entry.path());
  }
}

}  // namespace

std::string identity_difference(const Json& theirs, const Json& mine) {
  if (!theirs.is_object()) return "it does not say of which";
  std::set<std::string> names;
  for (const Json* one : {&theirs, &mine}) {
    for (const auto& item : one->items()) names.insert(item.key());
  }
  std::string out;
  for (const auto& name : names) {
    const Json there = theirs.value(name, Json()), now = mine.value(name, Json());
    if (there == now) continue;
    const auto text = [](const Json& value) { return value.is_null() ? std::string("nothing") : value.dump(); };
    out += fmt::format("{}{}: {} there, {} now", out.empty() ? "" : "; ", name, text(there), text(now));
  }
  return out;
}

/// Whole records by write(2): each is in the file at once or, when the process dies within, does not count.
struct RowJournal::Output {
  explicit Output(fs::path at)
      : path(std::move(at)), fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (fd < 0) fail();
  }
  ~Output() { ::close(fd); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  [[noreturn]] void fail() const {
    throw data_error(fmt::format("{}: finished rows cannot be kept: {}", path.string(), std::strerror(errno)),
                     "make room and give the same command again: it goes on with the rows that are missing");
  }

  fs::path path;
  int fd;
};

RowJournal::RowJournal(const fs::path& dir, const Json& identity, bool start_over, Communicator& control) : dir_(dir) {
  together(control, "opening the folder of finished rows", [&] {
    if (control.rank() != 0) return;
    make_folders(dir_);
    lock_.emplace(dir_ / kLock);
    if (!lock_->held()) {
      throw usage_error(fmt::format("another run writes in {} ({})", dir_.string(), lock_->owner()),
                        "wait for it, stop it, or name another output");
    }
    if (start_over) empty(dir_);
    if (fs::exists(dir_ / kIdentity)) {
      refuse_another_run(dir_, identity);
      return;
    }
    write_json(dir_ / kIdentity, identity);
  });
  together(control, "reading finished rows", [&] { index(); });
  // A run appends to files of its own, so that the torn end of an earlier one stays the end of its file.
  size_t run = 0;
  while (std::any_of(files_.begin(), files_.end(), [&](const fs::path& file) {
    return file.filename().string().starts_with(fmt::format("run{}-", run));
  })) {
    ++run;
  }
  together(control, "opening files for finished rows",
           [&] { output_ = std::make_unique<Output>(dir_ / fmt::format("run{}-rank{}.rows", run, control.rank())); });
}

RowJournal::~RowJournal() = default;

void RowJournal::index() {
  places_.clear();
  for (const auto& entry : fs::directory_iterator(dir_)) {
    if (entry.path().extension() == ".rows") files_.push_back(entry.path());
  }
  std::sort(files_.begin(), files_.end());
  files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
  for (size_t f = 0; f < files_.size(); ++f) {
    std::ifstream in(files_[f], std::ios::binary);
    const auto end = static_cast<int64_t>(fs::file_size(files_[f]));
    RecordHead head;
    std::string bytes;
    while (in.read(reinterpret_cast<char*>(&head), sizeof head)) {
      const int64_t offset = in.tellg();
      if (head.magic != kMagic || head.size < 0 || head.size > end - offset) break;
      bytes.resize(static_cast<size_t>(head.size));
      if (!in.read(bytes.data(), head.size) || checksum_of(bytes, head.row) != head.checksum) break;
      places_.try_emplace(head.row, Place{f, offset, head.size});
    }
  }
}

void RowJournal::append(int64_t row, std::string_view bytes) {
  const RecordHead head{.row = row, .size = static_cast<int64_t>(bytes.size()), .checksum = checksum_of(bytes, row)};
  std::string record(reinterpret_cast<const char*>(&head), sizeof head);
  record += bytes;
  output_->write(record);
  kept_bytes_ += static_cast<int64_t>(record.size());
}

void RowJournal::seal(Communicator& control) {
  const std::string mine = fmt::format("{} {}", kept_bytes_, output_->path.filename().string());
  output_.reset();
  const auto told = control.all_gather_bytes(mine, "finished rows of all ranks");
  together(control, "reading finished rows", [&] {
    files_.clear();
    for (size_t rank = 0; rank < told.size(); ++rank) await_file(static_cast<int>(rank), told[rank]);
    index();
  });
}

/// A network disk lists a folder as it was up to a minute ago; asked for one file by its name it looks anew.
void RowJournal::await_file(int rank, const std::string& told) {
  constexpr auto kAppears = std::chrono::seconds(5);
  const size_t space = told.find(' ');
  const std::string size = told.substr(0, space);
  const fs::path file = dir_ / told.substr(space + 1);
  std::error_code unknown;
  for (const Deadline deadline(kAppears); fmt::format("{}", fs::file_size(file, unknown)) != size || unknown;) {
    if (deadline.passed()) {
      throw data_error(
          fmt::format("{}: rank {} has kept {} bytes of finished rows there, which are not to be seen here",
                      file.string(), rank, size),
          "is it on a disk that all hosts share? The same command goes on with what is kept");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  files_.push_back(file);
}

std::string RowJournal::read(int64_t row) const {
  const auto place = places_.find(row);
  check(place != places_.end(), fmt::format("row {} is among the finished ones", row));
  std::ifstream in(files_[place->second.file], std::ios::binary);
  in.seekg(place->second.offset);
  std::string bytes(static_cast<size_t>(place->second.size), '\0');
  in.read(bytes.data(), place->second.size);
  check(in.good(), "a finished row can be read again");
  return bytes;
}

void RowJournal::remove() {
  std::error_code ignored;  // what is left is an empty folder at worst
  fs::remove_all(dir_, ignored);
}

Json RowJournal::identity_of_idle(const fs::path& dir) {
  std::error_code none;
  if (!fs::exists(dir / kIdentity, none) || !FileLock(dir / kLock).held()) return nullptr;
  const Json identity = parse_json_or_discard(read_text(dir / kIdentity));
  return identity.is_object() ? identity : Json(nullptr);
}

NewFile::Refused journal_keeps_rows() {
  return {.code = ExitCode::kData, .cure = "make room and give the same command again: no row is computed twice"};
}

}  // namespace lockstep
