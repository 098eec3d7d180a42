// What a row can hold, and sets of it: which parts of a model a batch needs. Text is there with any row.
//
// Example:
//   const Modalities tower{Modality::kImage, Modality::kVideo};
//   if (tower.meets(batch.modalities)) run(tower);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep {

/// A further one is an enumerator before kEnd, and its name.
enum class Modality : uint8_t { kText, kImage, kVideo, kAudio, kSpeech, kEnd };
std::string_view modality_name(Modality modality);  // "text", "image", "video", "audio", "speech"

/// A set of modalities.
class Modalities {
 public:
  constexpr Modalities() = default;
  constexpr Modalities(Modality member) : bits_(bit(member)) {}  // NOLINT(google-explicit-constructor): a set of one
  constexpr Modalities(std::initializer_list<Modality> members) {
    for (const Modality member : members) bits_ |= bit(member);
  }
  /// `present` or nothing.
  static constexpr Modalities text_if(bool present) { return from_bits(present ? bit(Modality::kText) : 0); }
  static constexpr Modalities from_bits(int64_t bits) {
    Modalities made;
    made.bits_ = bits;
    return made;
  }

  constexpr int64_t bits() const { return bits_; }  // as it travels between ranks
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Modality member) const { return (bits_ & bit(member)) != 0; }
  constexpr bool meets(Modalities other) const { return (bits_ & other.bits_) != 0; }
  constexpr Modalities& operator|=(Modalities other) {
    bits_ |= other.bits_;
    return *this;
  }
  constexpr Modalities without(Modalities other) const { return from_bits(bits_ & ~other.bits_); }
  constexpr bool operator==(const Modalities&) const = default;

  std::string names() const;  // "image, video"

 private:
  static constexpr int64_t bit(Modality member) { return int64_t{1} << static_cast<int>(member); }
  int64_t bits_ = 0;
};

inline constexpr Modalities kMedia{Modality::kImage, Modality::kVideo, Modality::kAudio};
/// What a tower for pictures runs on: a film is pictures.
inline constexpr Modalities kPictures{Modality::kImage, Modality::kVideo};

}  // namespace lockstep
