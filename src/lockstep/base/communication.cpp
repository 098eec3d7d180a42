#include "lockstep/base/communication.h"

namespace lockstep {

double CommunicationLine::bus_bandwidth(int ranks) const {
  const double shared = ranks > 0 ? static_cast<double>(ranks - 1) / ranks : 0;
  if (operation == "barrier") return 0;
  if (operation == "broadcast") return algorithm_bandwidth();
  return algorithm_bandwidth() * (operation == "all_reduce" ? 2 * shared : shared);
}

}  // namespace lockstep
