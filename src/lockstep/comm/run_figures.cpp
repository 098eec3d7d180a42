#include "lockstep/comm/run_figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {
namespace {

constexpr double kStandsOut = 1.2;      // times the mean
constexpr double kWorthTelling = 0.02;  // of the run

/// One line while it is summed: what each rank spent there.
struct Sum {
  CommunicationLine line;
  bool busy_told = true, late_told = true;
  std::vector<double> exposed, busy, late, calls, bytes;
};

double mean(const std::vector<double>& of_ranks) {
  return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / static_cast<double>(of_ranks.size());
}

/// Lines in the order in which they first appear.
class Sums {
 public:
  explicit Sums(size_t ranks) : ranks_(ranks) {}

  void add(size_t rank, const std::string& name, const LabelFigures& figures, bool of_parameters) {
    Sum& sum = of(name, figures.op, of_parameters);
    sum.busy_told = sum.busy_told && figures.busy_told;
    sum.late_told = sum.late_told && figures.late_told;
    sum.calls[rank] += static_cast<double>(figures.calls);
    sum.bytes[rank] += static_cast<double>(figures.bytes);
    sum.busy[rank] += static_cast<double>(figures.busy_ns) * 1e-9;
    sum.exposed[rank] += static_cast<double>(figures.exposed_ns) * 1e-9;
    sum.late[rank] += static_cast<double>(figures.late_ns) * 1e-9;
  }

  std::vector<CommunicationLine> lines() const {
    std::vector<CommunicationLine> lines;
    for (const Sum& sum : sums_) {
      CommunicationLine line = sum.line;
      line.calls = std::llround(mean(sum.calls));
      line.bytes = std::llround(mean(sum.bytes));
      line.exposed_seconds = mean(sum.exposed);
      if (sum.busy_told) line.busy_seconds = mean(sum.busy);
      if (sum.late_told) line.late_seconds = mean(sum.late);
      const auto longest = std::max_element(sum.exposed.begin(), sum.exposed.end());
      line.longest_exposed_seconds = *longest;
      if (*longest > kStandsOut * line.exposed_seconds) {
        line.longest_rank = static_cast<int>(longest - sum.exposed.begin());
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  Sum& of(const std::string& name, Op op, bool of_parameters) {
    const std::string key = name + '\n' + std::string(op_name(op)) + (of_parameters ? "\n1" : "\n0");
    const auto [found, is_new] = places_.try_emplace(key, sums_.size());
    if (is_new) {
      const std::vector<double> none(ranks_, 0.0);
      sums_.push_back({.line = {.name = name, .operation = std::string(op_name(op)), .of_parameters = of_parameters},
                       .exposed = none,
                       .busy = none,
                       .late = none,
                       .calls = none,
                       .bytes = none});
    }
    return sums_[found->second];
  }

  size_t ranks_;
  std::vector<Sum> sums_;
  std::unordered_map<std::string, size_t> places_;
};

/// The rank that waited least, when the others waited a good deal longer: it is the one that came last.
int waited_for(const std::vector<RankFigures>& ranks, double seconds) {
  std::vector<double> late;
  for (const auto& rank : ranks) {
    double sum = 0;
    for (const auto* lines : {&rank.of_parameters, &rank.others}) {
      for (const auto& line : *lines) {
        if (!line.late_told) return -1;
        sum += static_cast<double>(line.late_ns) * 1e-9;
      }
    }
    late.push_back(sum);
  }
  const auto least = std::min_element(late.begin(), late.end());
  const double others = (mean(late) * static_cast<double>(late.size()) - *least) / static_cast<double>(late.size() - 1);
  const bool stands_out = others > kStandsOut * *least && others - *least > kWorthTelling * seconds;
  return stands_out ? static_cast<int>(least - late.begin()) : -1;
}

Json to_json(const std::vector<LabelFigures>& lines) {
  Json json = Json::array();
  for (const auto& line : lines) {
    json.push_back(Json::array({static_cast<int>(line.op), line.label, line.calls, line.bytes, line.busy_ns,
                                line.exposed_ns, line.late_ns, line.busy_told, line.late_told}));
  }
  return json;
}

std::vector<LabelFigures> from_json(const Json& json) {
  std::vector<LabelFigures> lines;
  for (const auto& line : json) {
    lines.push_back({.op = static_cast<Op>(line.at(0).get<int>()),
                     .label = line.at(1),
                     .calls = line.at(2),
                     .bytes = line.at(3),
                     .busy_ns = line.at(4),
                     .exposed_ns = line.at(5),
                     .late_ns = line.at(6),
                     .busy_told = line.at(7),
                     .late_told = line.at(8)});
  }
  return lines;
}

}  // namespace

std::string kind_of(std::string_view label, bool of_parameters) {
  const size_t space = label.find(' ');
  if (of_parameters && space != std::string_view::npos) label.remove_prefix(space + 1);
  std::string kind;
  for (const char c : label) {
    if (c >= '0' && c <= '9') continue;
    if (c == ' ' && (kind.empty() || kind.back() == ' ')) continue;
    kind += c;
  }
  if (!kind.empty() && kind.back() == ' ') kind.pop_back();
  return kind.empty() ? std::string(label) : kind;
}

CommunicationFigures merge_figures(const std::vector<RankFigures>& ranks) {
  CommunicationFigures merged{.ranks = static_cast<int>(ranks.size())};
  if (ranks.size() < 2) return merged;
  Sums kinds(ranks.size()), labels(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    merged.seconds += ranks[rank].seconds / static_cast<double>(ranks.size());
    for (const bool of_parameters : {true, false}) {
      for (const auto& line : of_parameters ? ranks[rank].of_parameters : ranks[rank].others) {
        kinds.add(rank, kind_of(line.label, of_parameters), line, of_parameters);
        labels.add(rank, line.label, line, of_parameters);
      }
    }
  }
  merged.kinds = kinds.lines();
  merged.labels = labels.lines();
  std::stable_sort(merged.kinds.begin(), merged.kinds.end(),
                   [](const auto& a, const auto& b) { return a.exposed_seconds > b.exposed_seconds; });
  merged.waited_for = waited_for(ranks, merged.seconds);
  return merged;
}

CommunicationFigures collect_figures(const Communicator& data, Communicator& control) {
  const Json mine = {data.figures().seconds(), to_json(data.figures().lines()), to_json(control.figures().lines())};
  std::vector<RankFigures> ranks;
  for (const auto& text :
       control.all_gather_bytes(mine.dump(-1, ' ', false, Json::error_handler_t::replace), "communication figures")) {
    const Json theirs = parse_json(text, "communication figures");
    ranks.push_back({theirs.at(0), from_json(theirs.at(1)), from_json(theirs.at(2))});
  }
  CommunicationFigures merged = merge_figures(ranks);
  merged.transport = data.backend_name();
  return merged;
}

}  // namespace lockstep
