// How values become text: str(), repr() and json.dumps() of Python.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <utf8proc.h>

#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/value.h"
#include "lockstep/text/utf8.h"

namespace lockstep::jinja {
namespace {

// The shortest digits that read back as the same number, in Python's layout.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;  // 1e-05, 1e+16
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

// str.isprintable(): no separators but the space, no control, format, private or unassigned characters.
bool prints(char32_t c) {
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return c == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

std::string escaped(char32_t c) {
  const auto code = static_cast<uint32_t>(c);
  return code < 0x100     ? fmt::format("\\x{:02x}", code)
         : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char mark = has_single && !has_double ? '"' : '\'';
  std::string out(1, mark);
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    const char32_t c = step.code_point;
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c == static_cast<char32_t>(mark) || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (!prints(c)) {
      out += escaped(c);
    } else {
      out.append(text.substr(i, step.size));
    }
    i += step.size;
  }
  return out + mark;
}

std::string list_repr(const List& list) {
  const bool tuple = list.kind == List::Kind::kTuple;
  std::string out = tuple ? "(" : "[";
  for (size_t i = 0; i < list.items.size(); ++i) out += (i > 0 ? ", " : "") + to_repr(list.items[i]);
  if (tuple && list.items.size() == 1) out += ",";
  return out + (tuple ? ")" : "]");
}

std::string dict_repr(const Dict& dict) {
  std::string out = "{";
  for (size_t i = 0; i < dict.items.size(); ++i) {
    out += (i > 0 ? ", " : "") + to_repr(dict.items[i].first) + ": " + to_repr(dict.items[i].second);
  }
  return out + "}";
}

std::string json_string(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    const auto c = static_cast<uint32_t>(step.code_point);
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const size_t known = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += {'\\', kLetters[known]};
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      out += fmt::format("\\u{:04x}", c);
    } else if (ensure_ascii && c >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out.append(text.substr(i, step.size));
    }
    i += step.size;
  }
  return out + "\"";
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    spend_steps(1);
    spend_bytes(value.bytes());
    if (value.is_string()) {
      out += json_string(value.string(), style_.ensure_ascii);
    } else if (value.is_none() || value.is_bool()) {
      out += value.is_none() ? "null" : value.truth() ? "true" : "false";
    } else if (value.is_float() && !std::isfinite(value.to_double())) {
      out += std::isnan(value.to_double()) ? "NaN" : value.to_double() < 0 ? "-Infinity" : "Infinity";
    } else if (value.is_number()) {
      out += to_text(value);
    } else if (value.is_dict()) {
      write_dict(value.dict());
    } else if (value.is_list() && !value.is_generator()) {
      const Values& items = value.list().items;
      write_items('[', ']', items.size(), [&](size_t i) { write(items[i]); });
    } else {
      throw TemplateError(fmt::format("TypeError: Object of type {} is not JSON serializable", value.type_name()));
    }
  }

  std::string out;

 private:
  void write_dict(const Dict& dict) {
    spend_bytes(dict.items.size() * sizeof(dict.items[0]));
    auto items = dict.items;
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    }
    write_items('{', '}', items.size(), [&](size_t i) {
      const Value& key = items[i].first;
      JsonWriter name(style_);
      name.write(key);
      spend_bytes(style_.key_separator.size());
      out += (key.is_string() ? name.out : "\"" + name.out + "\"") + style_.key_separator;
      write(items[i].second);
    });
  }

  template <typename WriteItem>
  void write_items(char open, char close, size_t size, const WriteItem& write_item) {
    out += open;
    ++depth_;
    for (size_t i = 0; i < size; ++i) {
      spend_bytes(style_.item_separator.size());
      if (i > 0) out += style_.item_separator;
      new_line();
      write_item(i);
    }
    --depth_;
    if (size > 0) new_line();
    out += close;
  }

  void new_line() {
    if (!style_.has_indent) return;
    spend_bytes(style_.indent.size() * static_cast<size_t>(depth_));
    out += '\n';
    for (int i = 0; i < depth_; ++i) out += style_.indent;
  }

  const JsonStyle& style_;
  int depth_ = 0;
};

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_string()) return value.string();
  return value.is_undefined() ? std::string() : to_repr(value);
}

std::string to_repr(const Value& value) {
  // Before the text is: lists that hold each other many times have many more characters than values.
  spend_steps(1);
  spend_bytes(value.bytes());
  if (value.is_string()) return quote(value.string());
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truth() ? "True" : "False";
  if (value.is_int()) return fmt::format("{}", value.to_int());
  if (value.is_float()) return float_text(value.to_double());
  if (value.is_dict()) return dict_repr(value.dict());
  if (value.is_list() && !value.is_generator()) return list_repr(value.list());
  return fmt::format("<{}>", value.type_name());
}

std::string to_json_text(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace lockstep::jinja
