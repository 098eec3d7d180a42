#include "lockstep/watch/plan_page.h"

#include <nlohmann/json.hpp>

#include "lockstep/watch/html.h"
#include "lockstep/watch/report_memory.h"
#include "lockstep/watch/report_style.h"

namespace lockstep {

std::string plan_page(const std::string& title, const Json& memory, const std::string& text) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>";
  out += escape_html(title) + "</title><style>" + std::string(kReportStyle) + "</style></head><body><main>\n";
  out += "<div class=\"top\"><h1>" + escape_html(title) + "</h1></div>\n" + report_memory_html(memory, nullptr);
  out += "<h2>Plan</h2>\n<pre>" + escape_html(text) + "</pre>\n<footer>Written by Lockstep.</footer></main><script>";
  return out + std::string(kReportScript) + "</script></body></html>\n";
}

}  // namespace lockstep
