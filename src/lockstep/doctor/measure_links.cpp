#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/json.h"
#include "lockstep/doctor/links.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

constexpr int64_t kMessageBytes = int64_t{8} << 20;
constexpr size_t kMostAgain = 32;
constexpr int kMostRounds = 128;  // of the tournament: every link of as many ranks
constexpr int kWarmUps = 3, kLatencyTries = 100;

/// There and back.
double there_and_back(Communicator& pair, const Tensor& value, const std::function<void()>& synchronize) {
  const auto begun = Clock::now();
  pair.broadcast(value, 0, "there");
  pair.broadcast(value, 1, "back");
  if (synchronize) synchronize();
  return seconds_since(begun);
}

/// How often both sides send the large message: as often as fits the time, as the lower rank counts.
int64_t agreed_tries(Communicator& pair, const LinkOptions& options, double first) {
  const std::vector<int64_t> mine = {
      std::clamp<int64_t>(static_cast<int64_t>(options.tries_seconds / first), 1, options.tries)};
  const Tensor tries = from_values(std::span<const int64_t>(mine), {1});
  pair.broadcast(tries, 0, "tries");
  return *static_cast<const int64_t*>(tries.data_ptr());
}

void measure(Communicator& pair, const LinkOptions& options, Link& link) {
  const Tensor word = zeros({1}, Dtype::kI64, options.pair.device);
  for (int i = 0; i < kWarmUps; ++i) there_and_back(pair, word, options.synchronize);
  std::vector<double> times;
  times.reserve(kLatencyTries);
  for (int i = 0; i < kLatencyTries; ++i) times.push_back(there_and_back(pair, word, options.synchronize) / 2);
  std::nth_element(times.begin(), times.begin() + kLatencyTries / 2, times.end());
  link.latency_seconds = times[kLatencyTries / 2];
  const Tensor message = zeros({kMessageBytes / 4}, Dtype::kF32, options.pair.device);
  there_and_back(pair, message, options.synchronize);  // pages are touched and buffers grown
  double best = there_and_back(pair, message, options.synchronize);
  const int64_t tries = agreed_tries(pair, options, best);
  for (int64_t i = 0; i < tries; ++i) best = std::min(best, there_and_back(pair, message, options.synchronize));
  link.bytes_per_second = 2.0 * static_cast<double>(kMessageBytes) / best;
}

Link link_with(int peer, const World& world, Rendezvous& meeting_point, const LinkOptions& options) {
  Link link{.a = std::min(world.rank, peer), .b = std::max(world.rank, peer)};
  try {
    const auto pair = connect_pair(world, meeting_point, peer, options.pair);
    measure(*pair, options, link);
  } catch (const std::exception& error) {
    link.error = describe_failure(error).message;
  }
  return link;
}

int partner_in(const LinkRound& round, int rank) {
  for (const auto& [a, b] : round) {
    if (a == rank) return b;
    if (b == rank) return a;
  }
  return -1;
}

/// The links of all rounds, in the order of their ranks. Collective.
std::vector<Link> measure_rounds(const std::vector<LinkRound>& rounds, const World& world, Rendezvous& meeting_point,
                                 Communicator& control, const LinkOptions& options) {
  Json mine = Json::array();  // the lower rank of a pair tells
  for (size_t r = 0; r < rounds.size(); ++r) {
    const int peer = partner_in(rounds[r], world.rank);
    if (peer >= 0) {
      const Link link = link_with(peer, world, meeting_point, options);
      if (link.a == world.rank) mine.push_back(as_json(link));
    }
    control.barrier(fmt::format("{}: round {} of {}", options.pair.name, r + 1, rounds.size()));
    if (options.progress) options.progress(static_cast<int64_t>(r + 1), static_cast<int64_t>(rounds.size()));
  }
  std::vector<Link> links;
  for (const auto& text : control.all_gather_bytes(mine.dump(), "links")) {
    for (const auto& json : parse_json(text, "links")) links.push_back(link_from(json));
  }
  std::sort(links.begin(), links.end(),
            [](const Link& x, const Link& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
  return links;
}

}  // namespace

std::vector<Link> measure_links(const World& world, Rendezvous& meeting_point, Communicator& control,
                                const LinkOptions& options) {
  auto links = measure_rounds(link_rounds(world.size, kMostRounds), world, meeting_point, control, options);
  std::vector<LinkRound> alone;
  for (const auto& link : slow_links(links)) {
    if (alone.size() < kMostAgain) alone.push_back({{link.a, link.b}});
  }
  LinkOptions again = options;
  again.pair.name += "-again";
  again.progress = {};
  again.tries = 5 * options.tries;
  again.tries_seconds = 5 * options.tries_seconds;
  for (const auto& second : measure_rounds(alone, world, meeting_point, control, again)) {
    const auto first = std::find_if(links.begin(), links.end(),
                                    [&](const Link& link) { return link.a == second.a && link.b == second.b; });
    if (!second.error.empty() || second.bytes_per_second > first->bytes_per_second) *first = second;
  }
  return links;
}

}  // namespace lockstep
