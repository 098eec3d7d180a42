// The report's section about communication: a bar and the figures of each kind of call, folded those of each label.
#pragma once

#include <string>

#include "lockstep/base/communication.h"

namespace lockstep {

/// HTML; "" when there are no figures.
std::string communication_section(const CommunicationFigures& figures);

}  // namespace lockstep
