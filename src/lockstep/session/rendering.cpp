#include "lockstep/session/rendering.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/base64.h"
#include "lockstep/data/encode_wav.h"
#include "lockstep/data/image.h"
#include "lockstep/data/sample_view.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int kVersion = 1;  // of the fixed rows, and of what is kept of them: another one is not compared
constexpr const char* kKey = "rendering";
constexpr uintmax_t kMostBytes = 16U << 20U;  // of an args.json
constexpr size_t kMostFigures = 16;
constexpr double kTolerance = 2e-3;

/// Noise that any filter, size, mean or spread changes.
std::string picture(int64_t width, int64_t height, int64_t number) {
  Image image{.width = width, .height = height};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        image.pixels.push_back(
            static_cast<uint8_t>((x * 37 + y * 91 + c * 53 + (x * y) % 17 * 11 + number * 71) % 256));
    }
  }
  return "data:image/png;base64," + encode_base64(encode_png(image));
}

/// Half a second of a saw-tooth: 16 bits, 16 kHz, one channel.
std::string sound() {
  std::string samples;
  for (int i = 0; i < 8000; ++i) {
    const int value = i * 37 % 4000;
    samples += {static_cast<char>(value & 0xFF), static_cast<char>(value >> 8)};
  }
  return "data:audio/wav;base64," + encode_base64(encode_wav(samples, 16000));
}

/// What each row tries, and whether an answer in it is learnt.
struct FixedRow {
  std::string name;
  Sample sample;
  bool trained = false;
};

std::vector<FixedRow> fixed_rows() {
  const Message question{.role = "user", .content = "Wie viele \u00c4pfel?  12.50 \u20ac,\n\t3 \u82f9\u679c's."};
  const Message answer{.role = "assistant", .content = "Three: a, b and c."};
  const Message next{.role = "user", .content = " And now? "};
  std::vector<FixedRow> rows{{"conversation", {.messages = {question, answer, next, answer}}, true},
                             {"system", {.messages = {{.role = "system", .content = "Be brief."}, next}}}};
  const auto with_medium = [&](Modality kind) -> Sample& {
    const std::string text = fmt::format("{}What is it?", media_mark(kind));
    rows.push_back({std::string(modality_name(kind)), {.messages = {{.role = "user", .content = text}}}});
    return rows.back().sample;
  };
  with_medium(Modality::kImage).images = {picture(64, 33, 0)};
  with_medium(Modality::kVideo).videos = {
      {.frames = {picture(36, 30, 0), picture(36, 30, 1), picture(36, 30, 2), picture(36, 30, 3)}, .fps = 2}};
  with_medium(Modality::kAudio).audios = {sound()};
  for (auto& row : rows) row.sample.where = "the fixed " + row.name;
  return rows;
}

void add_figures(RenderedRow& row, const MediaBlock& block) {
  if (row.figures.size() >= kMostFigures || block.values.empty()) return;
  double sum = 0, squares = 0;
  for (const float value : block.values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double mean = sum / static_cast<double>(block.values.size());
  const double spread = std::sqrt(std::max(0.0, squares / static_cast<double>(block.values.size()) - mean * mean));
  for (const double figure : {mean, spread}) row.figures.push_back(std::round(figure * 1e5) / 1e5);  // for readers
}

RenderedRow rendered(const Features& features, const Tokenizer& tokenizer) {
  RenderedRow row{.shown = view_sample(features, tokenizer)};
  const std::vector<int> filled = filled_by(features.media, features.input_ids.size());
  for (size_t i = 0; i < features.input_ids.size(); ++i) {
    if (filled[i] < 0) row.tokens += fmt::format("{}{}", row.tokens.empty() ? "" : " ", features.input_ids[i]);
  }
  const auto learnt = [](int32_t label) { return label >= 0; };
  const auto first = std::ranges::find_if(features.labels, learnt);
  if (first != features.labels.end()) {
    row.targets =
        fmt::format("{} from {}", std::ranges::count_if(features.labels, learnt), first - features.labels.begin());
  }
  for (const MediaBlock& block : features.media) {
    row.media.push_back(
        fmt::format("{} {} fills {}", modality_name(block.modality), format_shape(block.shape), block.places.size()));
    add_figures(row, block);
  }
  return row;
}

bool near(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
           return std::abs(x - y) <= kTolerance * (1 + std::abs(y));
         });
}

/// The text for one line, in quotes.
std::string in_quotes(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// "…" with what stands around the byte `at`, cut between characters.
std::string around(std::string_view text, size_t at) {
  constexpr size_t kBefore = 24, kBehind = 40;
  const auto border = [&](size_t place) {
    while (place > 0 && place < text.size() && (static_cast<unsigned char>(text[place]) & 0xC0) == 0x80) --place;
    return std::min(place, text.size());
  };
  const size_t begin = border(at > kBefore ? at - kBefore : 0), end = border(at + kBehind);
  return in_quotes(text.substr(begin, end - begin));
}

std::string parting(std::string_view then, std::string_view now) {
  const auto [a, b] = std::mismatch(then.begin(), then.end(), now.begin(), now.end());
  const auto at = static_cast<size_t>(a - then.begin());
  return fmt::format("  they part at {} (then), {} (now)", around(then, at), around(now, at));
}

/// The first thing that differs, with both renderings; "" when nothing does.
std::string difference(const std::string& name, const RenderedRow& then, const RenderedRow& now) {
  const std::string both =
      fmt::format("the fixed {}\n  then  {}\n  now   {}\n", name, in_quotes(then.shown), in_quotes(now.shown));
  const std::string same = then.shown == now.shown ? "  of the same text, " : "  ";
  if (then.tokens != now.tokens) {
    if (then.shown != now.shown) return both + parting(then.shown, now.shown);
    return both + "  the same text is cut into other tokens:\n" + parting(then.tokens, now.tokens);
  }
  if (then.targets != now.targets) {
    return both + fmt::format("{}the model learnt {} tokens (then), learns {} (now)", same,
                              then.targets.empty() ? "no" : then.targets, now.targets.empty() ? "no" : now.targets);
  }
  if (then.media != now.media) {
    return both + fmt::format("  its media are {} (then), {} (now)", join(then.media, ", "), join(now.media, ", "));
  }
  if (near(then.figures, now.figures)) return "";
  const auto words = [](const std::vector<double>& figures) { return fmt::format("{:.4g}", fmt::join(figures, " ")); };
  return both + fmt::format("  its media are prepared as other numbers; means and spreads: {} (then), {} (now)",
                            words(then.figures), words(now.figures));
}

/// `read` and whether it was what it should be.
bool read_texts(const Json& json, const char* key, std::vector<std::string>& read) {
  if (!json.contains(key) || !json[key].is_array()) return false;
  for (const Json& one : json[key]) {
    if (!one.is_string()) return false;
    read.push_back(one.get<std::string>());
  }
  return true;
}

bool read_row(const Json& json, RenderedRow& row) {
  const auto text = [&](const char* key, std::string& read) {
    if (!json.contains(key) || !json[key].is_string()) return false;
    read = json[key].get<std::string>();
    return true;
  };
  if (!json.is_object() || !text("shown", row.shown) || !text("tokens", row.tokens) || !text("targets", row.targets) ||
      !read_texts(json, "media", row.media) || !json.contains("figures") || !json["figures"].is_array())
    return false;
  for (const Json& figure : json["figures"]) {
    if (!figure.is_number()) return false;
    row.figures.push_back(figure.get<double>());
  }
  return true;
}

std::optional<Rendering> kept_in(const fs::path& folder) {
  const fs::path path = folder / "args.json";
  std::error_code unknown;
  const auto size = fs::is_regular_file(path, unknown) ? fs::file_size(path, unknown) : 0;
  if (unknown || size == 0 || size > kMostBytes) return std::nullopt;
  const Json args = parse_json_or_discard(read_text(path));  // of anybody: what is no JSON keeps no rendering
  return args.is_object() && args.contains(kKey) ? Rendering::from_json(args[kKey]) : std::nullopt;
}

}  // namespace

std::string Rendering::hash() const {
  std::string all;
  for (const auto& [name, row] : rows) {
    all += fmt::format("{}\n{}\n{}\n{}\n", name, row.tokens, row.targets, fmt::join(row.media, "\n"));
  }
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

Json Rendering::json() const {
  Json out = {{"version", kVersion}, {"hash", hash()}};
  for (const auto& [name, row] : rows) {
    out["rows"][name] = {{"shown", row.shown},
                         {"tokens", row.tokens},
                         {"targets", row.targets},
                         {"media", row.media},
                         {"figures", row.figures}};
  }
  return out;
}

std::optional<Rendering> Rendering::from_json(const Json& json) {
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion || !json.contains("rows") ||
      !json["rows"].is_object())
    return std::nullopt;
  Rendering read;
  for (const auto& [name, row] : json["rows"].items()) {
    if (!read_row(row, read.rows[name])) return std::nullopt;
  }
  return read;
}

Rendering rendering_of(const Processor& processor) {
  Rendering made;
  for (const FixedRow& row : fixed_rows()) {
    try {
      const Features features =
          row.trained ? processor.train_features(row.sample, {}) : processor.prompt_features(row.sample, {});
      made.rows[row.name] = rendered(features, processor.tokenizer());
    } catch (const UserError&) {
      continue;  // not for this model: it reads no such media, has no such role, or too few positions
    }
  }
  return made;
}

std::string difference(const Rendering& then, const Rendering& now, Modalities unread) {
  for (const auto& [name, row] : then.rows) {
    const bool left_out = std::ranges::any_of(
        kMediaKinds, [&name = name, unread](Modality kind) { return name == modality_name(kind) && unread.has(kind); });
    if (left_out) continue;
    const auto found = now.rows.find(name);
    if (found == now.rows.end()) {
      return fmt::format("the fixed {}\n  then  {}\n  now   cannot be rendered", name, in_quotes(row.shown));
    }
    const std::string parted = difference(name, row, found->second);
    if (!parted.empty()) return parted;
  }
  return "";
}

void require_same_rendering(const fs::path& folder, const Rendering& now, Modalities unread) {
  const auto then = kept_in(folder);
  const std::string parted = then ? difference(*then, now, unread) : "";
  if (parted.empty()) return;
  throw checkpoint_error(
      fmt::format(
          "{}: rows are rendered in another way than when this checkpoint was made (args.json: {}, now {}), so it "
          "would be asked in words that it was not taught: {}",
          folder.string(), then->hash(), now.hash(), parted),
      fmt::format(
          "put the files back that were saved with the weights (chat template, tokenizer*, *processor_config.json); "
          "where the change is meant, take \"{}\" out of {}",
          kKey, (folder / "args.json").string()));
}

std::string with_rendering(const std::string& args_json, const Rendering& rendering) {
  Json args = parse_json_or_discard(args_json);
  if (!args.is_object()) return args_json;
  args[kKey] = rendering.json();
  return args.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
