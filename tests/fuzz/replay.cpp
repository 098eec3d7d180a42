// Replays every kept case, and random changes of them. Without clang this is all of the fuzzing; with it
// (tools/fuzz.sh TARGET), what libFuzzer finds is kept in seeds/ and replayed here.
//
// fuzz_replay SEEDS [ROUNDS] [TARGET]   the seed of the changes is LOCKSTEP_FUZZ_SEED, or 1
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "targets.h"

namespace fs = std::filesystem;
namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Words that break readers more often than random bytes do.
const std::vector<std::string> kWords = {
    "0",    "-1",   "1e400", "9223372036854775808",  "null", "{}",   "[]",      "\"\"",
    "true", "\xff", "[[[[",  "18446744073709551615", "1.5",  "-0.0", "{\"a\":", ","};

std::string changed(std::string text, std::mt19937_64& random) {
  const auto below = [&](size_t end) { return end == 0 ? 0 : static_cast<size_t>(random() % end); };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(text.size() + 1), length = std::min(text.size() - at, below(12));
    switch (below(5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kWords[below(kWords.size())]);
        break;
      case 2: {  // a number or a word becomes another
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = text.find_first_not_of("0123456789.", digit);
        text.replace(digit, (end == std::string::npos ? text.size() : end) - digit, kWords[below(kWords.size())]);
        break;
      }
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      default:
        text.insert(at, text.substr(below(text.size() + 1), below(40)));
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path seeds = argc > 1 ? argv[1] : "tests/fuzz/seeds";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::string wanted = argc > 3 ? argv[3] : "";
  const char* const given = std::getenv("LOCKSTEP_FUZZ_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  auto targets = lockstep::fuzz::reading_targets();
  for (auto& target : lockstep::fuzz::command_targets()) targets.push_back(target);
  for (auto& target : lockstep::fuzz::model_targets()) targets.push_back(target);
  for (const auto& target : targets) {
    if (!wanted.empty() && target.name != wanted) continue;
    std::vector<fs::path> files;
    if (fs::is_directory(seeds / target.name)) {
      for (const auto& entry : fs::directory_iterator(seeds / target.name)) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      std::fprintf(stderr, "%s: no seeds in %s\n", target.name.c_str(), (seeds / target.name).c_str());
      return 1;
    }
    for (const auto& file : files) lockstep::fuzz::run_one(target, read(file));
    std::mt19937_64 random(seed);
    const fs::path last = fs::temp_directory_path() / ("lockstep_fuzz_last_" + target.name);
    for (int i = 0; i < rounds; ++i) {
      const std::string bytes = changed(read(files[random() % files.size()]), random);
      std::ofstream(last, std::ios::binary) << bytes;  // what ends the process can be looked at
      lockstep::fuzz::run_one(target, bytes);
    }
    fs::remove(last);
    std::printf("%s: %zu cases, %d changes (LOCKSTEP_FUZZ_SEED=%llu)\n", target.name.c_str(), files.size(), rounds,
                static_cast<unsigned long long>(seed));
  }
  return 0;
}
