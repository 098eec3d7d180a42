#include "lockstep/data/row_table.h"

#include <exception>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/arrow_api.h"

namespace lockstep {
namespace {

constexpr const char* kLibrary = "liblockstep_arrow.so";
constexpr const char* kCure =
    "`make setup && make build` fetch and build it; beside a wheel of lockstep, pip install pyarrow==26.0.1; or write "
    "the rows as JSON lines";
constexpr int64_t kMostRows = 200'000'000;

/// The file that holds this code: our program, or a shared object that another has loaded, as Python does.
std::filesystem::path own_folder() {
  Dl_info info{};
  link_map* object = nullptr;
  const auto* here = reinterpret_cast<const void*>(&own_folder);
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  const std::string name = object->l_name;
  return (name.empty() ? own_executable() : std::filesystem::path(name)).parent_path();
}

const ArrowApi& open_library(const std::string& file) {
  const auto refused = [&](const std::string& why) {
    return data_error(
        fmt::format("--dataset {}: Parquet and Arrow files are read by {}, which {}", file, kLibrary, why), kCure);
  };
  const auto folder = own_folder();
  for (const auto& place : {folder / kLibrary, folder.parent_path() / "lib" / kLibrary}) {
    std::error_code unknown;
    if (!std::filesystem::exists(place, unknown)) continue;
    void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its pools outlive tables
    if (library == nullptr) throw refused(fmt::format("cannot be loaded: {}", ::dlerror()));
    using Entry = const ArrowApi* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "lockstep_arrow_api"));
    const ArrowApi* api = entry == nullptr ? nullptr : entry();
    if (api != nullptr && api->version == ArrowApi::kVersion) return *api;
    throw refused(fmt::format("is of another version: expected {}, found {}", ArrowApi::kVersion,
                              api == nullptr ? 0 : api->version));
  }
  throw refused("is neither beside the program nor in ../lib");
}

}  // namespace

bool RowTable::is_table(std::string_view bytes) {
  // A stream of Arrow messages begins with a mark of four bytes and the first one's length.
  return bytes.starts_with("PAR1") || bytes.starts_with("ARROW1") || bytes.starts_with("\xff\xff\xff\xff");
}

RowTable::RowTable(const std::string& name, std::span<const std::byte> bytes) : api_(&open_library(name)) {
  try {
    table_ =
        api_->open(bytes, [bytes] { ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_DONTNEED); });
    rows_ = api_->rows(table_);
    if (rows_ < 0 || rows_ > kMostRows) {
      api_->close(table_);
      throw data_error(fmt::format("{}: expected up to {} rows, found {}", name, kMostRows, rows_));
    }
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw data_error(
        fmt::format("{}: expected a Parquet or Arrow file, found one that cannot be read: {}", name,
                    cut_text(error.what(), 400)),
        "is the file complete? compare its size with its source's; a compression that is not read: write it with zstd");
  }
}

RowTable::~RowTable() { api_->close(table_); }

Json RowTable::row(int64_t index, const std::string& where) const {
  try {
    const std::string text = api_->row(table_, index);
    Json row;
    JsonFault fault;
    if (try_parse_json(text, row, fault)) return row;
    throw data_error(fmt::format("{}: expected a row, found {}", where, fault.why));
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw data_error(fmt::format("{}: cannot be read: {}", where, cut_text(error.what(), 400)));
  }
}

}  // namespace lockstep
