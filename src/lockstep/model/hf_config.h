// config.json with typed reads that name the key, the expected kind and what was found; old and new spellings.
//
// Example:
//   const HfConfig config = HfConfig::load(dir);
//   const int64_t hidden = config.at("text_config").integer("hidden_size");
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/model/model_place.h"

namespace lockstep {

/// What a size in a config may be. Beyond these no model exists, and sums of products stay far from overflow.
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;  // of a state, of a picture's edge in pixels
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;  // each becomes a block before any weight is looked at
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
struct SizeRange {
  int64_t least = 1, most = kMaxWidth;
};

class HfConfig {
 public:
  static HfConfig load(const ModelPlace& place);  // config.json of its folder; throws UserError(kCheckpoint)
  HfConfig(Json value, std::string where);
  /// The same with these keys in place of the file's own, or beside them.
  HfConfig with(const Json& keys) const;
  HfConfig with(const Json& keys, std::string notice) const;
  ~HfConfig();
  HfConfig(const HfConfig&);
  HfConfig& operator=(const HfConfig&);

  bool has(const std::string& key) const;         // present and not null
  HfConfig at(const std::string& key) const;      // a sub-object; an empty one when absent
  int64_t integer(const std::string& key) const;  // the overloads without a default throw when absent
  int64_t integer(const std::string& key, int64_t otherwise) const;
  int64_t size(const std::string& key, int64_t otherwise, SizeRange range = {}) const;  // an integer of the range
  double number(const std::string& key, double otherwise) const;
  double positive(const std::string& key, double otherwise) const;  // above 0
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::string> texts(const std::string& key) const;  // list of strings; empty when absent
  std::vector<int64_t> integers(const std::string& key) const;   // a number counts as a list of one

  const Json& json() const;
  const std::string& where() const { return where_; }                    // "config.json text_config"
  const std::filesystem::path& folder() const { return place_.folder; }  // that load() read it from; else empty
  const ModelPlace& place() const { return place_; }
  bool differs_from_file() const { return differs_; }
  const std::vector<std::string>& notices() const { return notices_; }  // sentences about it that a person should see

 private:
  std::shared_ptr<const Json> value_;
  std::string where_;
  ModelPlace place_;
  bool differs_ = false;
  std::vector<std::string> notices_;
};

}  // namespace lockstep
