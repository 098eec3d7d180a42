// Where a rank stands before it has met the others, in the words of its phase's detail: who reads them is the judge.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kMeeting = "meeting at ";
/// "meeting at 10.0.0.1:29500, rank 2 of 4 waits for rank 3": it has reached the meeting point, and those before rank 3 have too.
inline constexpr std::string_view kWaitsForRank = "waits for rank ";
/// All have met.
inline constexpr std::string_view kConnecting = "connecting to the other ranks";

}  // namespace lockstep
