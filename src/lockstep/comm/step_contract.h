// Before each micro-batch the ranks exchange one small record and act on the union: so the order of collectives is a
// function of the plan and this record, never of one rank's batch. Source: DESIGN, idea 4.
//
// Example:
//   const Agreement agreed = agree(control, {.modalities = batch.modalities.bits(), .target_tokens = 37});
//   if (agreed.modalities.empty()) break;             // every rank leaves the loop at the same micro-batch
#pragma once

#include <cstdint>

#include "lockstep/base/modality.h"

namespace lockstep {

class Communicator;

/// What one rank brings to a micro-batch. A fixed-size record.
struct StepContract {
  int64_t modalities = 0;     // Modalities::bits(); 0: out of data, but serving its shards until all are done
  int64_t target_tokens = 0;  // labels that count, after the shift by one
  int64_t input_tokens = 0;   // tokens that are not padding, for throughput
  int64_t rows = 0;
  int64_t speech_targets = 0;  // codes that a talker learns
  int64_t correct_tokens = 0;  // of the *previous* micro-batch, piggy-backed for token accuracy
  int64_t stop = 0;            // a wish to stop (signal): honoured by all at the same step
  int64_t skipped = 0;
  int64_t more = 0;          // rows of this micro-batch that did not fit in memory with these: they come next
  uint64_t fingerprint = 0;  // rolling hash of the data communicator's calls: must agree
  uint64_t plan_hash = 0;
};

/// The union, equal on every rank.
struct Agreement {
  Modalities modalities;  // on any rank; empty: no rank has rows
  bool stop = false, more = false;
  int64_t target_tokens = 0, input_tokens = 0, rows = 0, speech_targets = 0, correct_tokens = 0, skipped = 0;
};

/// One small all-gather on the control communicator. Throws CollectiveError naming the ranks when fingerprints or plans
/// differ.
Agreement agree(Communicator& control, const StepContract& mine);

}  // namespace lockstep
