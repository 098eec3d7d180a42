#include "lockstep/base/modality.h"

#include <set>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Modality, EachHasANameAndABitOfItsOwn) {
  std::set<std::string> names;
  Modalities all;
  for (int i = 0; i < static_cast<int>(Modality::kEnd); ++i) {
    const auto modality = static_cast<Modality>(i);
    EXPECT_FALSE(all.has(modality));
    all |= {modality};
    EXPECT_TRUE(all.has(modality));
    names.insert(std::string(modality_name(modality)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Modality::kEnd));
  EXPECT_EQ(Modalities::from_bits(all.bits()), all);
}

TEST(Modality, SetsMeetWhereOneIsInBoth) {
  const Modalities tower{Modality::kImage, Modality::kVideo}, ear{Modality::kAudio};
  EXPECT_TRUE(tower.meets({Modality::kText, Modality::kVideo}));
  EXPECT_FALSE(tower.meets({Modality::kText, Modality::kAudio}));
  EXPECT_TRUE(ear.meets({Modality::kAudio}));
  EXPECT_FALSE(tower.meets({}));
  EXPECT_EQ(tower.names(), "image, video");
  EXPECT_EQ(Modalities::text_if(true), Modalities{Modality::kText});
  EXPECT_TRUE(Modalities::text_if(false).empty());
}

}  // namespace
}  // namespace lockstep
