// The figures of communication as people and programs read them: a table for the terminal, an object for files.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/communication.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// The cells of a line, for tables of any kind.
struct CommunicationCells {
  std::string calls, bytes, busy, exposed, late, algorithm_bandwidth, bus_bandwidth, share, longest;
};
CommunicationCells communication_cells(const CommunicationLine& line, const CommunicationFigures& figures);

/// What a table shows: every kind of call for parameters, the longest of the others, the rest as one line; or each
/// label.
std::vector<CommunicationLine> communication_rows(const CommunicationFigures& figures);

/// The sum of all calls.
CommunicationLine communication_total(const CommunicationFigures& figures);

/// "over shared memory, most waiting was for rank 1".
std::string communication_summary(const CommunicationFigures& figures);

/// What the columns mean, in a few words.
extern const std::string_view kCommunicationLegend;

/// Lines of text without an end of line; none when there are no figures.
std::vector<std::string> communication_table(const CommunicationFigures& figures);

/// What is not known is null. `labels` too, or the kinds alone.
Json communication_json(const CommunicationFigures& figures, bool labels);

}  // namespace lockstep
