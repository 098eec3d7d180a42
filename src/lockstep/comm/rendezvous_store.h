// Inside comm only: the c10d store behind a Rendezvous.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/rendezvous.h"

namespace lockstep {

struct Rendezvous::Impl {
  c10::intrusive_ptr<c10d::Store> store;  // of this round of the job; none until it is known

  // Where the store is a launcher's, and outlives the rounds. A rank takes part in one that its rank 0 has answered it with.
  struct Question {
    std::string name, answer;
    int64_t asked = 0;                 // how many of those who asked have been looked at
    std::vector<int64_t> unread = {};  // of them, those whose word is still to come
  };
  c10::intrusive_ptr<c10d::Store> lasting;
  std::string who;                  // rank and address, for messages
  std::string round, own_question;  // this round's name, once known; under which key its answer comes
  std::vector<Question> answered;   // by this rank
};

/// c10d's errors end with a stack.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace lockstep
