#include "lockstep/exec/touched_rings.h"

#include <gtest/gtest.h>

#include "lockstep/comm/backend_shm.h"

namespace lockstep {
namespace {

constexpr int64_t kKib = 1024;

TEST(TouchedRings, HoldNothingWhereNothingWasCalled) { EXPECT_EQ(TouchedRings(2).bytes(), 0); }

TEST(TouchedRings, MeetEveryCallInEverySlotWhereAPhaseShiftsThem) {
  TouchedRings rings(3);
  rings.shares(100);
  rings.phase_ends();
  EXPECT_EQ(rings.bytes(), kShmSlots * 3 * 100) << "one call a step: another slot each time";
}

TEST(TouchedRings, LeaveSmallCallsTheirSlotsWhereEachStepTakesAllInTurn) {
  TouchedRings rings(2);
  for (int i = 0; i < 2; ++i) {
    rings.shares(1000);
    rings.shares(10);
  }
  rings.phase_ends();
  EXPECT_EQ(rings.bytes(), 2 * 2 * (1000 + 10));
  rings.shares(1);  // of another phase, behind which everything stands in another slot
  rings.phase_ends();
  EXPECT_EQ(rings.bytes(), 4 * 2 * 1000);
}

/// The last rank's part of 1000 bytes begins at 500, of 400 at 200, of 200 at 100.
TEST(TouchedRings, CountWhatIsReadOfPeersOnce) {
  TouchedRings rings(2);
  for (const int64_t bytes : {1000, 400, 200}) {
    for (int i = 0; i < kShmSlots; ++i) rings.reduces(bytes);
  }
  rings.phase_ends();
  EXPECT_EQ(rings.bytes(), kShmSlots * (1000 + 800)) << "100 to 400 and 500 to 1000";
}

TEST(TouchedRings, CutWhatIsLargerThanASlot) {
  TouchedRings rings(2);
  rings.shares(kDataSlotBytes + 10 * kKib);
  rings.phase_ends();
  EXPECT_EQ(rings.bytes(), 2 * 2 * (kDataSlotBytes + 10 * kKib)) << "two turns";
}

}  // namespace
}  // namespace lockstep
