// What liblockstep_arrow.so offers to the program: one table of functions, so that the program itself links no Apache Arrow. It
// is opened when a file of such rows is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep {

struct ArrowTable;

/// Functions throw std::exception where they can fail; its words say what is wrong with the file.
struct ArrowApi {
  static constexpr int kVersion = 2;
  int version = kVersion;
  /// Of Parquet or Arrow bytes, which are borrowed. Reads no row. `forget`, called now and then, lets pages of the bytes leave
  /// memory that have been read.
  ArrowTable* (*open)(std::span<const std::byte> bytes, std::function<void()> forget) = nullptr;
  int64_t (*rows)(const ArrowTable* table) = nullptr;
  /// A row as JSON text: bytes as base64, what is null left out. Any number of threads.
  std::string (*row)(ArrowTable* table, int64_t index) = nullptr;
  void (*close)(ArrowTable* table) = nullptr;
};

}  // namespace lockstep
