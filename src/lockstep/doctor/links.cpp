#include "lockstep/doctor/links.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json_fields.h"

namespace lockstep {
namespace {

constexpr size_t kMostLines = 28;  // all pairs of eight ranks
constexpr double kSlow = 1.0 / 3;

std::string pair_text(const Link& link) { return fmt::format("{}-{}", link.a, link.b); }

std::string line_of(const Link& link) {
  if (!link.error.empty()) return fmt::format("{:>9}  {}", pair_text(link), link.error);
  return fmt::format("{:>9}  {:>8.3f} GB/s  {:>9.1f} us", pair_text(link), link.bytes_per_second * 1e-9,
                     link.latency_seconds * 1e6);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

template <typename Of>
std::vector<double> sorted_by(const std::vector<Link>& links, Of of) {
  std::vector<double> values;
  values.reserve(links.size());
  for (const auto& link : links) values.push_back(of(link));
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<Link> whole_links(const std::vector<Link>& links) {
  std::vector<Link> whole;
  std::copy_if(links.begin(), links.end(), std::back_inserter(whole),
               [](const Link& link) { return link.error.empty(); });
  return whole;
}

double usual_speed(const std::vector<Link>& whole) {
  return median(sorted_by(whole, [](const Link& link) { return link.bytes_per_second; }));
}

std::vector<std::string> table_of(std::vector<Link> links) {
  std::vector<std::string> lines = {fmt::format("{:>9}  {:>13}  {:>12}", "ranks", "bandwidth", "latency")};
  const bool all = links.size() <= kMostLines;
  if (!all) {
    std::stable_sort(links.begin(), links.end(),
                     [](const Link& x, const Link& y) { return x.bytes_per_second < y.bytes_per_second; });
  }
  for (size_t i = 0; i < std::min(links.size(), kMostLines); ++i) lines.push_back(line_of(links[i]));
  if (!all) lines.push_back(fmt::format("  … and {} faster ones (--json has all)", links.size() - kMostLines));
  return lines;
}

CheckResult summary_of(int ranks, const std::string& transport, const std::vector<Link>& whole,
                       const std::vector<Link>& links) {
  const auto speeds = sorted_by(whole, [](const Link& link) { return link.bytes_per_second * 1e-9; });
  const auto latencies = sorted_by(whole, [](const Link& link) { return link.latency_seconds * 1e6; });
  const int64_t all = static_cast<int64_t>(ranks) * (ranks - 1) / 2;
  const auto measured = static_cast<int64_t>(links.size());
  CheckResult result =
      fine("bandwidth", fmt::format("{} pair{} of {} ranks over {}: {:.3f} / {:.3f} / {:.3f} GB/s "
                                    "(min / median / max), latency {:.1f} / {:.1f} / {:.1f} us",
                                    measured < all ? fmt::format("{} of {}", measured, all) : std::to_string(measured),
                                    all == 1 ? "" : "s", ranks, transport, speeds.front(), median(speeds),
                                    speeds.back(), latencies.front(), median(latencies), latencies.back()));
  result.table = table_of(links);
  return result;
}

CheckResult slow_result(const std::vector<Link>& slow, double usual, const std::string& transport) {
  std::vector<int> counts;
  std::string pairs;
  for (size_t i = 0; i < slow.size(); ++i) {
    if (i < 8)
      pairs +=
          fmt::format("{}{} ({:.3f} GB/s)", i == 0 ? "" : ", ", pair_text(slow[i]), slow[i].bytes_per_second * 1e-9);
    for (const int rank : {slow[i].a, slow[i].b}) {
      if (counts.size() <= static_cast<size_t>(rank)) counts.resize(static_cast<size_t>(rank) + 1);
      ++counts[static_cast<size_t>(rank)];
    }
  }
  if (slow.size() > 8) pairs += fmt::format(" and {} more", slow.size() - 8);
  const auto most = std::max_element(counts.begin(), counts.end());
  const std::string common =
      slow.size() > 1 && *most == static_cast<int>(slow.size())
          ? fmt::format("; rank {} is in all of them: look at its machine first", most - counts.begin())
          : "";
  return warning("slow links", fmt::format("less than a third of the median {:.3f} GB/s: {}{}", usual, pairs, common),
                 transport == "shared memory"
                     ? "look at what else runs on the machine (top), and keep a rank's threads and memory together "
                       "(numactl --cpunodebind N --membind N)"
                     : "look at the cable, switch port and speed (ethtool IFACE), at the interface taken "
                       "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO says which), and at what else runs "
                       "there");
}

}  // namespace

std::vector<LinkRound> link_rounds(int size, int most) {
  // The circle method: one stands still, the others move round it; with an odd number the still one is a free place.
  const int places = size < 2 ? 1 : size + size % 2;
  std::vector<LinkRound> rounds;
  for (int r = 0; r < std::min(places - 1, most); ++r) {
    LinkRound round;
    for (int i = 0; i < places / 2; ++i) {
      const int x = i == 0 ? places - 1 : (r + i) % (places - 1);
      const int y = (r + places - 1 - i) % (places - 1);
      if (x < size && y < size) round.emplace_back(std::min(x, y), std::max(x, y));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<Link> slow_links(const std::vector<Link>& links) {
  const std::vector<Link> whole = whole_links(links);
  std::vector<Link> slow;
  if (whole.empty()) return slow;
  const double limit = usual_speed(whole) * kSlow;
  std::copy_if(whole.begin(), whole.end(), std::back_inserter(slow),
               [&](const Link& link) { return link.bytes_per_second < limit; });
  return slow;
}

CheckResults judge_links(int ranks, const std::string& transport, const std::vector<Link>& links) {
  if (ranks == 1) return {fine("bandwidth", "one rank has no links; --nproc 2 measures them")};
  const std::vector<Link> whole = whole_links(links), slow = slow_links(links);
  CheckResults out;
  if (!whole.empty()) out.push_back(summary_of(ranks, transport, whole, links));
  if (!slow.empty()) out.push_back(slow_result(slow, usual_speed(whole) * 1e-9, transport));
  const auto broken = std::find_if(links.begin(), links.end(), [](const Link& link) { return !link.error.empty(); });
  if (broken != links.end()) {
    out.push_back(
        failure("broken links",
                fmt::format("{} of {} pairs could not exchange bytes over {}; ranks {}: {}",
                            links.size() - whole.size(), links.size(), transport, pair_text(*broken), broken->error),
                "let the hosts reach each other on all ports (firewall), and name the right interface: "
                "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME",
                ExitCode::kCommunication));
  }
  return out;
}

static void describe(Link& link, JsonFields& f) {
  std::vector<int> ranks{link.a, link.b};
  const bool whole = link.error.empty();
  f("ranks", ranks);
  f.nullable("bytes_per_second", link.bytes_per_second, whole);
  f.nullable("latency_seconds", link.latency_seconds, whole);
  f.nullable("error", link.error, !whole);
  link.a = ranks.at(0);
  link.b = ranks.at(1);
}

Json as_json(const Link& link) { return json_of(link); }
Link link_from(const Json& json) { return record_of<Link>(json, JsonReading::kStrict); }

}  // namespace lockstep
