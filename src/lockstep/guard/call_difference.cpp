#include "lockstep/guard/call_difference.h"

#include <fmt/format.h>

#include "lockstep/guard/call_paths.h"

namespace lockstep {
namespace {

bool one_line(const FlightRecord& odd, const FlightRecord& usual) { return odd.site.view() == usual.site.view(); }

/// Two calls rather than one that differs, where a line tells which rank went where. `cure`: of one call.
void look_first_for_a_branch(const FlightRecord& odd, const FlightRecord& usual, std::string_view cure,
                             Diagnosis& out) {
  if (one_line(odd, usual)) return;
  out.why += ", and the calls come from two lines: one of them may be a call that the others do not make";
  out.fix = fmt::format(
      "look first for a branch on the rank or on the data around {} and {}: every rank must make the same calls in "
      "the same order; only where the two are meant as one call, {}",
      odd.site.view(), usual.site.view(), cure);
}

void explain_shapes(const FlightRecord& odd, const FlightRecord& usual, const std::string& name, Diagnosis& out) {
  const CallSignature &a = odd.signature, &b = usual.signature;
  const bool equal_size = a.numel() == b.numel() && a.splits == b.splits;
  const std::string mine = a.describe(), theirs = b.describe();
  const std::string kind = equal_size ? "shape of the same size" : "shape", who = out.culprits.phrase();
  out.headline = mine == theirs
                     ? fmt::format("{} sent another {}: {} in other pieces than the others'", who, kind, mine)
                     : fmt::format("{} sent another {}: {} beside {}", who, kind, mine, theirs);
  out.why = fmt::format("{} has another shape there{}", name,
                        equal_size ? "; the transport moves bytes and would not notice" : "");
  if (odd.label.view() != usual.label.view()) {  // from one line
    out.fix = fmt::format(
        "they are different tensors, not one of another shape: have the same modules on all ranks, and train or freeze "
        "the same of them (requires_grad), before {}",
        odd.site.view());
    return;
  }
  out.fix = fmt::format(
      "make the shape equal on all ranks before {} (pad, or cut to the shortest); where sizes may "
      "differ, gather nested values, which carry their shapes",
      odd.site.view());
  look_first_for_a_branch(odd, usual, "make its shape equal on all ranks", out);
}

void explain_groups(const FlightRecord& odd, const FlightRecord& usual, const std::string& others, Diagnosis& out) {
  out.headline = fmt::format("{} made a group of {} where {} made one of {}", out.culprits.phrase(), odd.label.view(),
                             others, usual.label.view());
  out.why = "a group is made by all ranks together, whether they are of it or not, and each must name the same ones";
  out.fix = fmt::format("pass the same ranks, in the same order of calls, on all ranks at {}", odd.site.view());
}

/// Of one shape and another name.
void explain_names(const FlightRecord& odd, const FlightRecord& usual, Diagnosis& out) {
  out.headline = fmt::format("{} sent another tensor: \"{}\" beside \"{}\"", out.culprits.phrase(), odd.label.view(),
                             usual.label.view());
  out.why = "the calls have one shape, so the transport pairs them without noticing: the values would be mixed up";
  out.fix =
      one_line(odd, usual)
          ? fmt::format(
                "make all of them on all ranks, in one order: look for what chooses which of them comes "
                "at {} (modules that are run by the data, an order that is not sorted)",
                odd.site.view())
          : fmt::format("make the calls in one order on all ranks, for instance sorted by name: look at {} and {}",
                        odd.site.view(), usual.site.view());
}

}  // namespace

void explain_difference(const FlightRecord& odd, const FlightRecord& usual, const std::string& others, Diagnosis& out) {
  const CallSignature &a = odd.signature, &b = usual.signature;
  const std::string who = out.culprits.phrase();
  const std::string_view mine = odd.label.view(), theirs = usual.label.view();
  const std::string name = mine != theirs ? fmt::format("\"{}\" beside \"{}\"", mine, theirs)
                           : mine.empty() ? std::string("the call")
                                          : fmt::format("\"{}\"", mine);
  if (a.op == Op::kNewGroup && b.op == Op::kNewGroup) {
    explain_groups(odd, usual, others, out);
  } else if (a.between_two() && b.between_two()) {
    out.headline = fmt::format("{} and {} differ in what goes between them: {} beside {}", who, others, a.describe(),
                               b.describe());
    out.why = "what is sent is not what is waited for: the receiver gets a part of it, waits for more, or ends at once";
    out.fix = fmt::format("send and receive tensors of one size and dtype: look at {} and {}", odd.site.view(),
                          usual.site.view());
  } else if (a.op != b.op || (mine != theirs && !one_line(odd, usual))) {  // a label is of one place: two are two calls
    const auto text = [&](const FlightRecord& call) {
      return a.op != b.op ? std::string(op_name(call.signature.op)) : call.call();
    };
    out.headline = fmt::format("{} made another call: {} beside {}", who, text(odd), text(usual));
    out.why = "the ranks took different branches: they are not at the same place of the program";
    out.fix = fmt::format(
        "every rank must make the same calls in the same order: look for a branch on the rank or on "
        "the data before {} and {}",
        odd.site.view(), usual.site.view());
  } else if (a.dtype != b.dtype) {
    out.headline = fmt::format("{} sent another dtype: {} beside {}", who, a.dtype_text(), b.dtype_text());
    out.why =
        fmt::format("{} has dtype {} there; the transport moves bytes and would not notice", name, a.dtype_text());
    out.fix = fmt::format("give the tensor one dtype on all ranks before {}; for a whole model: the same torch_dtype",
                          odd.site.view());
    look_first_for_a_branch(odd, usual, "give its tensor one dtype on all ranks", out);
  } else if (a.reduce != b.reduce) {
    out.headline = fmt::format("{} reduces by {} where others take the {}", who, reduce_op_name(a.reduce),
                               reduce_op_name(b.reduce));
    out.why =
        fmt::format("{} is combined by another operation on a part of the ranks: the results would be wrong", name);
    out.fix = fmt::format("pass the same reduce operation on all ranks at {}", odd.site.view());
    look_first_for_a_branch(odd, usual, "pass the same reduce operation on all ranks", out);
  } else if (a.root != b.root) {
    out.headline = fmt::format("{} names root {} where others name {}", who, a.root, b.root);
    out.why = fmt::format("each side of {} expects its values from another rank", name);
    out.fix = fmt::format("pass the same root on all ranks at {}: a constant, not the own rank", odd.site.view());
    look_first_for_a_branch(odd, usual, "pass the same root on all ranks: a constant, not the own rank", out);
  } else if (a.num_dims != b.num_dims || a.dims != b.dims || a.splits != b.splits || a.has_splits != b.has_splits) {
    explain_shapes(odd, usual, name, out);
  } else if (same_call(odd, usual)) {
    out.headline = fmt::format("{} left the others' path before the calls that are recorded", who);
    out.why = "the calls shown are equal but the histories before them are not: values are mixed up since then";
    out.fix = fmt::format(
        "every rank must make the same calls in the same order: look for a branch on the rank or on "
        "the data that comes to {}",
        odd.site.view());
  } else {
    explain_names(odd, usual, out);
  }
}

}  // namespace lockstep
