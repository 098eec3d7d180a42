#include "lockstep/cli/quant_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/number_bounds.h"

namespace lockstep {

void add_quant_flags(CLI::App& app, QuantFlags& f) {
  const char* group = "Codes of few bits (QLoRA)";
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->group(group);
  };
  add("--quant_method", f.method, "bnb: matrices are made codes while they are loaded");
  add("--quant_bits", f.given.bits, "4 | 8: of a matrix' numbers (default: as the folder has them)")
      ->check(whole_number(0, 8));
  add("--bnb_4bit_quant_type", f.given.type, "nf4 | fp4")->capture_default_str();
  add("--bnb_4bit_use_double_quant", f.given.nested, "scales of 4 bits are codes as well")->capture_default_str();
  add("--bnb_4bit_compute_dtype", f.compute_dtype, "what --torch_dtype says: everything is computed in one dtype");
  add("--bnb_4bit_quant_storage", f.storage, "uint8: codes are kept as bytes");
  add("--llm_int8_skip_modules", f.given.skip,
      "names of modules that are not (default: towers and projectors; none: no module; heads and tables never are)");
}

QuantOptions QuantFlags::options(const std::string& compute) const {
  if (!method.empty() && method != "bnb" && method != "bitsandbytes" && method != "none") {
    throw usage_error(fmt::format("--quant_method {}: is not built", method), "--quant_method bnb --quant_bits 4");
  }
  if ((method == "none" && given.asked()) || (method.starts_with("b") && !given.asked())) {
    throw usage_error(fmt::format("--quant_method {} and --quant_bits {} contradict each other", method, given.bits),
                      "--quant_method bnb --quant_bits 4");
  }
  const QuantOptions usual;  // as args.json of a run without codes says them
  const char* const asks = given.type != usual.type       ? "--bnb_4bit_quant_type"
                           : given.nested != usual.nested ? "--bnb_4bit_use_double_quant"
                           : given.skip != usual.skip     ? "--llm_int8_skip_modules"
                                                          : nullptr;
  if (!given.asked() && asks != nullptr) {
    throw usage_error(fmt::format("{}: nothing is made codes without --quant_bits", asks),
                      "--quant_method bnb --quant_bits 4, or leave it out");
  }
  if (!compute_dtype.empty() && (compute.empty() || dtype_from_flag(compute_dtype) != dtype_from_flag(compute))) {
    throw usage_error(
        fmt::format("--bnb_4bit_compute_dtype {}: everything is computed in one dtype, {}", compute_dtype,
                    compute.empty() ? "and --torch_dtype is not given" : "and --torch_dtype says " + compute),
        "--torch_dtype " + compute_dtype);
  }
  if (!storage.empty() && storage != "uint8") {
    throw usage_error(
        fmt::format("--bnb_4bit_quant_storage {}: codes are kept, gathered and written as bytes, uint8", storage),
        "leave it out: it changes no number");
  }
  given.check();
  return given;
}

}  // namespace lockstep
