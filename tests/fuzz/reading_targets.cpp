#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>

#include "targets.h"
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/python_literal.h"
#include "lockstep/data/audio.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/data_file.h"
#include "lockstep/data/dataset_info.h"
#include "lockstep/data/image.h"
#include "lockstep/data/patch_image.h"
#include "lockstep/data/row_mapping.h"
#include "lockstep/data/sample.h"
#include "lockstep/data/slice_image.h"
#include "lockstep/guard/frames.h"
#include "lockstep/guard/tree_key.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/safetensors_header.h"
#include "lockstep/model/stored_tensor.h"
#include "lockstep/model/test_torch_file.h"
#include "lockstep/model/torch_file.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/trainer_state.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/new_tokens.h"
#include "lockstep/text/sentencepiece/test_piece_file.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep::fuzz {
namespace fs = std::filesystem;
namespace {

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void row(std::string_view bytes) {
  Json json;
  JsonFault fault;
  if (!try_parse_json(bytes, json, fault)) return;
  const Sample sample = sample_from_row(json, "rows.jsonl:1", "/nowhere");
  if (!sample.metadata.empty()) (void)parse_json(sample.metadata, "metadata");
}

/// A file as --dataset names it: all its rows, as far as a run would go.
void rows_of(const std::string& name, std::string_view bytes) {
  const fs::path file = fs::path(fresh_folder()) / name;
  write(file, bytes);
  const DataFile rows(file.string());
  constexpr size_t kLooked = 200;
  for (size_t i = 0; i < std::min(rows.size(), kLooked); ++i) {
    try {
      (void)sample_from_row(rows.row(i), rows.where(i), MediaFolders({"/nowhere"}, false));
    } catch (const UserError&) {  // a broken row is skipped
    }
  }
}

void csv(std::string_view bytes) { rows_of("rows.csv", bytes); }
void parquet(std::string_view bytes) { rows_of("rows.parquet", bytes); }
void arrow_file(std::string_view bytes) { rows_of("rows.arrow", bytes); }

void dataset_info(std::string_view bytes) {
  const fs::path file = fs::path(fresh_folder()) / "dataset_info.json";
  write(file, bytes);
  std::vector<std::string> known;
  for (const char* name : {"one", "two", "me/mine"}) {
    const auto entry = find_entry(file, name, known);
    if (entry) (void)mapped_row({{"q", "a"}, {"talk", Json::array({{{"who", "person"}}})}}, entry->mapping, "row 1");
  }
}

void python_literal(std::string_view bytes) {
  Json out;
  JsonFault fault;
  if (try_parse_python(bytes, out, fault)) (void)out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void safetensors(std::string_view bytes) {
  for (const auto& stored : parse_safetensors_header(test_torch::as_bytes(bytes), "m.safetensors")) {
    if (stored.end > bytes.size()) std::abort();
  }
}

/// Of every tensor the first and the last elements, by the strides that the file says.
void copy_some(const std::vector<StoredTensor>& tensors, std::span<const std::byte> file) {
  constexpr int64_t kSome = 300;
  std::vector<std::byte> out;
  for (const auto& stored : tensors) {
    if (stored.begin > stored.end || stored.end > file.size()) std::abort();
    const int64_t numel = numel_of(stored.spec.shape), count = std::min(numel, kSome);
    out.resize(static_cast<size_t>(count * dtype_bytes(stored.spec.dtype)));
    copy_elements(stored, file, 0, out);
    copy_elements(stored, file, numel - count, out);
  }
}

void torch_file(std::string_view bytes) {
  const auto file = test_torch::as_bytes(bytes);
  copy_some(parse_torch_file(file, "m.bin"), file);
}

/// A pickle alone, among storages of the sizes that the seeds speak of.
void torch_pickle(std::string_view bytes) {
  test_torch::Zip zip;
  zip.add({.name = "archive/data.pkl", .bytes = std::string(bytes)});
  int key = 0;
  for (const size_t size : {24, 8, 8, 8, 8, 24, 3, 2, 12, 0}) {
    zip.add({.name = "archive/data/" + std::to_string(key++), .bytes = std::string(size, '\1')});
  }
  const std::string file = zip.bytes();
  copy_some(parse_torch_file(test_torch::as_bytes(file), "m.bin"), test_torch::as_bytes(file));
}

/// Texts there and back, with whatever tokenizer the folder has.
void use_tokenizer(const fs::path& folder) {
  const Tokenizer made = Tokenizer::load(folder);
  const auto ids =
      made.encode(" Hello w\u00f6rld 123\n\n  <s>\xff aaaaaaaa\u3000<x> \u2581ab", {.add_special_tokens = true});
  for (const int32_t id : ids) {
    if (id < 0 || id >= made.vocab_size()) std::abort();  // would be looked up outside the embedding
  }
  (void)made.decode(ids, false);
  std::string streamed;
  StreamDecoder stream(made, true);
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.finish();
  if (streamed != made.decode(ids, true)) std::abort();
}

/// Given tokens of its own, it has all that it had, and these.
void give_tokens(const fs::path& folder) {
  const Tokenizer before = Tokenizer::load(folder);
  const Tokenizer after = Tokenizer::load({folder, files_with_tokens(folder, {"<new>", "[\"\\]"})});
  for (int32_t id = 0; id < before.vocab_size(); ++id) {
    if (after.token_of(id) != before.token_of(id)) std::abort();
  }
  if (!after.id_of("<new>")) std::abort();
}

void tokenizer(std::string_view bytes) {
  const fs::path folder = fresh_folder();
  write(folder / "tokenizer.json", bytes);
  use_tokenizer(folder);
  give_tokens(folder);
}

void tokenizer_model(std::string_view bytes) {
  const fs::path folder = fresh_folder();
  write(folder / "tokenizer.model", bytes);
  use_tokenizer(folder);
}

/// The files beside a tokenizer.model: one object with the three of them.
void tokenizer_side(std::string_view bytes) {
  static const std::string model =
      test_pieces::File().add("\u2581", -3).add("a", -1).add("\u2581a", -2).add_bytes().bytes();
  Json files;
  JsonFault fault;
  if (!try_parse_json(bytes, files, fault) || !files.is_object()) return;
  const fs::path folder = fresh_folder();
  write(folder / "tokenizer.model", model);
  for (const std::string name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    if (files.contains(name)) write(folder / name, files.at(name).dump());
  }
  use_tokenizer(folder);
  give_tokens(folder);
}

void chat_template(std::string_view bytes) {
  static const Json talk = Json::parse(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]},
          {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
          {"role": "user", "content": "c\u00e9"}, {"role": "assistant", "content": "d"}])");
  const ChatTemplate chat(bytes, "chat_template.jinja");
  (void)chat.render(talk, {.add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"});
  (void)chat.render_spans(talk);
}

void image(std::string_view bytes) {
  const Image made = decode_image(bytes, "picture");
  if (made.width <= 0 || made.height <= 0 || made.pixels.size() != static_cast<size_t>(made.width * made.height * 3))
    std::abort();
}

void audio(std::string_view bytes) {
  // A small file may hold hours of silence: what is allowed and only slow is another matter.
  const Audio made = decode_audio(bytes, "clip", {.max_seconds = 40, .why = "the fuzzer is impatient"});
  if (made.samples.empty()) std::abort();
  for (const float sample : made.samples) {
    if (!(sample > -1e9F && sample < 1e9F)) std::abort();
  }
}

void picture_config(std::string_view bytes) {
  const Json json = parse_json(bytes, "preprocessor_config.json");
  const Image grey{.width = 40, .height = 30, .pixels = std::vector<uint8_t>(40 * 30 * 3, 90)};
  try {
    ClipImageConfig clip = read_clip_image_config(json, "preprocessor_config.json");
    // Sizes that are allowed and only slow are another matter than what is refused.
    if (clip.shortest_edge < 500 && clip.height < 500 && clip.width < 500 && clip.crop_height < 500 &&
        clip.crop_width < 500)
      (void)clip_pixels(grey, clip, "picture");
  } catch (const UserError&) {
  }
  try {
    const SliceImageConfig slices = read_slice_image_config(json, "preprocessor_config.json");
    if (slices.resolution < 500) (void)slice_pixels(grey, slices, "picture");
  } catch (const UserError&) {
  }
  const PatchImageConfig patch = read_patch_image_config(json, "preprocessor_config.json");
  if (patch.min_pixels < 1 << 20 && patch.patch * patch.merge < 200 && patch.temporal_patch < 8)
    (void)patch_pixels({grey}, patch, "picture");
}

void text_config(std::string_view bytes) {
  const HfConfig config(parse_json(bytes, "config.json"), "config.json");
  const TextConfig text = read_text_config(config, "llama");
  if (text.heads <= 0 || text.layers <= 0 || text.head_dim <= 0) std::abort();
}

void trainer_state(std::string_view bytes) {
  (void)trainer_state_from_json(parse_json(bytes, "trainer_state.json"), "trainer_state.json");
}

void manifest(std::string_view bytes) {
  const fs::path folder = fresh_folder();
  write(folder / kManifestName, bytes);
  write(folder / "a", "abc");
  verify_folder(folder);
}

/// A stream on which a peer has said `bytes` and left.
FrameStream said(std::string_view bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return FrameStream(-1);
  bytes = bytes.substr(0, 60'000);  // what a socket holds
  (void)!::write(ends[1], bytes.data(), bytes.size());
  ::close(ends[1]);
  return FrameStream(ends[0]);
}

void frame(std::string_view bytes) {
  FrameStream stream = said(bytes);
  stream.pump();
  while (const auto message = stream.receive()) (void)message->dump(-1, ' ', false, Json::error_handler_t::replace);
  FrameStream sealed = said(bytes);
  sealed.seal(MacKey("ours"), MacKey("theirs"));
  sealed.pump();
  if (sealed.receive()) std::abort();  // nobody here has the key
}

/// Both sides of a greeting, with a peer that does not know the key.
void greeting(std::string_view bytes) {
  const MacKey key = tree_key("a long random secret", "salt");
  FrameStream from_child = said(bytes), from_parent = said(bytes);
  if (ParentGreeting(0).hear(from_child, key, [](int) { return true; }) == Greeted::kMet) std::abort();
  if (ChildGreeting(key, {.child = 1, .parent = 0}).hear(from_parent) == Greeted::kMet) std::abort();
}

}  // namespace

std::string fresh_folder() {
  static const std::string folder = [] {
    const char* const base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    return std::string(base) + "/lockstep_fuzz_" + std::to_string(::getpid());
  }();
  fs::remove_all(folder);
  fs::create_directories(folder);
  static const int at_end = std::atexit([] { fs::remove_all(folder); });
  (void)at_end;
  return folder;
}

std::vector<Target> reading_targets() {
  return {{"row", row},
          {"csv", csv},
          {"parquet", parquet},
          {"arrow_file", arrow_file},
          {"dataset_info", dataset_info},
          {"python_literal", python_literal},
          {"safetensors", safetensors},
          {"torch_file", torch_file},
          {"torch_pickle", torch_pickle},
          {"tokenizer", tokenizer},
          {"tokenizer_model", tokenizer_model},
          {"tokenizer_side", tokenizer_side},
          {"template", chat_template},
          {"image", image},
          {"audio", audio},
          {"picture_config", picture_config},
          {"text_config", text_config},
          {"trainer_state", trainer_state},
          {"manifest", manifest},
          {"frame", frame},
          {"greeting", greeting}};
}

void run_one(const Target& target, std::string_view bytes) {
  try {
    target.run(bytes);
    return;
  } catch (const InternalError& error) {
    std::fprintf(stderr, "%s: a bug: %s\n", target.name.c_str(), error.what());
  } catch (const UserError& error) {
    constexpr size_t kLongest = 8000;
    if (std::string_view(error.what()).size() <= kLongest) return;
    std::fprintf(stderr, "%s: a message of %zu bytes\n", target.name.c_str(), std::string_view(error.what()).size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: not told as a user's error: %s\n", target.name.c_str(), error.what());
  }
  std::abort();
}

}  // namespace lockstep::fuzz
