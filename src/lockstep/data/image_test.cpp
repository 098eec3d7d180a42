#include "lockstep/data/image.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/base64.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/image_codecs.h"
#include "lockstep/data/random.h"
#include "lockstep/data/test_images.h"

namespace lockstep {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(LOCKSTEP_FIXTURES) / "images";

Json expected() { return read_json(kFixtures / "expected.json"); }
std::string fixture(const std::string& name) { return read_text(kFixtures / name); }

/// What decode_image says of these bytes; "" when it takes them.
std::string complaint(std::string_view bytes) {
  try {
    decode_image(bytes, "train.jsonl:17: image a.png");
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_TRUE(std::string(error.what()).starts_with("train.jsonl:17: image a.png: ")) << error.what();
    return error.what();
  }
}

testing::AssertionResult holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
}

Image tiny(int64_t width, int64_t height) {
  Image image{.width = width, .height = height, .pixels = {}};
  for (int64_t i = 0; i < width * height * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(10 + i));
  return image;
}

TEST(Image, IsTurnedUprightUnlessThatIsNotAskedFor) {
  const std::string file = (std::filesystem::path(LOCKSTEP_FIXTURES) / "images/exif_6.jpg").string();
  const Image upright = load_image(file, "row"), stored = load_image(file, "row", /*upright=*/false);
  EXPECT_EQ(std::pair(upright.width, upright.height), std::pair(stored.height, stored.width));
  EXPECT_NE(upright.pixels, stored.pixels);
}

TEST(Image, EveryKindOfFileDecodesToPillowsBytes) {
  int count = 0;
  const Json files = expected();
  for (const auto& [name, entry] : files.items()) {
    const Image image = decode_image(fixture(name), name);
    EXPECT_EQ(image.width, entry["width"].get<int64_t>()) << name;
    EXPECT_EQ(image.height, entry["height"].get<int64_t>()) << name;
    EXPECT_EQ(fnv(image), entry["hash"].get<std::string>()) << name;
    ++count;
  }
  EXPECT_EQ(count, 32);
}

TEST(Image, ResizeGivesPillowsBytesForEveryFilter) {
  int count = 0;
  const Json files = expected();
  for (const auto& [name, entry] : files.items()) {
    if (!entry.contains("resized")) continue;
    const Image image = decode_image(fixture(name), name);
    for (const auto& want : entry["resized"]) {
      const Image small = resize(image, want["width"].get<int64_t>(), want["height"].get<int64_t>(),
                                 static_cast<Resample>(want["filter"].get<int>()), ImageBackend::kPillow);
      EXPECT_EQ(fnv(small), want["hash"].get<std::string>()) << name << want;
      ++count;
    }
  }
  EXPECT_EQ(count, 48);
}

TEST(Image, CenterCropCutsAndPadsAsTransformersDoes) {
  const Image image = tiny(3, 1);  // pixels (10 11 12)(13 14 15)(16 17 18)
  for (const ImageBackend backend : {ImageBackend::kTorchvision, ImageBackend::kPillow}) {
    EXPECT_EQ(center_crop(image, 1, 1, backend).pixels, (std::vector<uint8_t>{13, 14, 15}));
    EXPECT_EQ(center_crop(image, 2, 1, backend).pixels,
              (std::vector<uint8_t>{10, 11, 12, 13, 14, 15}));  // left = 1 / 2
  }
  // One column too many stands on the left by Pillow's way, on the right by torchvision's; so does a row.
  EXPECT_EQ(center_crop(image, 4, 1, ImageBackend::kPillow).pixels,
            (std::vector<uint8_t>{0, 0, 0, 10, 11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(center_crop(image, 4, 1, ImageBackend::kTorchvision).pixels,
            (std::vector<uint8_t>{10, 11, 12, 13, 14, 15, 16, 17, 18, 0, 0, 0}));
  EXPECT_EQ(center_crop(image, 1, 2, ImageBackend::kPillow).pixels, (std::vector<uint8_t>{0, 0, 0, 13, 14, 15}));
  EXPECT_EQ(center_crop(image, 1, 2, ImageBackend::kTorchvision).pixels, (std::vector<uint8_t>{13, 14, 15, 0, 0, 0}));
}

TEST(Image, TheEightOrientationsTurnAsExifSays) {
  // Stored 2 x 1: A B. Red channel only, for brevity.
  const Image stored{.width = 2, .height = 1, .pixels = {1, 0, 0, 2, 0, 0}};
  const auto reds = [&](int orientation) {
    const Image turned = apply_orientation(stored, orientation);
    return std::make_tuple(turned.width, turned.height, int{turned.pixels[0]}, int{turned.pixels[3]});
  };
  EXPECT_EQ(reds(1), std::make_tuple(2, 1, 1, 2));
  EXPECT_EQ(reds(2), std::make_tuple(2, 1, 2, 1));
  EXPECT_EQ(reds(3), std::make_tuple(2, 1, 2, 1));
  EXPECT_EQ(reds(4), std::make_tuple(2, 1, 1, 2));
  EXPECT_EQ(reds(5), std::make_tuple(1, 2, 1, 2));
  EXPECT_EQ(reds(6), std::make_tuple(1, 2, 1, 2));
  EXPECT_EQ(reds(7), std::make_tuple(1, 2, 2, 1));
  EXPECT_EQ(reds(8), std::make_tuple(1, 2, 2, 1));
}

void add_big_endian(std::string& to, uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) to += static_cast<char>(value >> shift & 255U);
}

/// As PNG has it, with its CRC-32.
std::string png_chunk(const std::string& kind, const std::string& body) {
  uint32_t sum = ~0U;
  for (const char c : kind + body) {
    sum ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  std::string out;
  add_big_endian(out, static_cast<uint32_t>(body.size()));
  out += kind + body;
  add_big_endian(out, ~sum);
  return out;
}

/// A stream of zlib that holds the text as it is.
std::string stored_zlib(const std::string& text) {
  uint32_t a = 1, b = 0;
  for (const char c : text) b = (b + (a = (a + static_cast<uint8_t>(c)) % 65521)) % 65521;
  const auto size = static_cast<uint32_t>(text.size());
  std::string out = "\x78\x01\x01";
  for (const uint32_t part : {size, size >> 8, ~size, ~size >> 8}) out += static_cast<char>(part & 255U);
  add_big_endian(out += text, b << 16 | a);
  return out;
}

TEST(Image, TextsOfAPngTurnItAsPillowDoes) {
  const std::string png = encode_png(tiny(5, 2)), kZero(1, '\0');
  const std::string profile = "\nexif\n      32\n45786966000049492a00080000000100120103000100\n00000600000000000000\n";
  const std::string xmp = R"(<x tiff:Orientation="6"/>)", raw_name = "Raw profile type exif" + kZero,
                    xmp_name = "XML:com.adobe.xmp" + kZero;
  const size_t header = 8 + 25, end = png.size() - 12;
  const auto width = [&](const std::string& chunk, size_t at) {
    return decode_image(std::string(png).insert(at, chunk), "a").width;
  };
  for (const size_t at : {header, end}) {
    EXPECT_EQ(width(png_chunk("tEXt", raw_name + profile), at), 2);
    EXPECT_EQ(width(png_chunk("zTXt", raw_name + kZero + stored_zlib(profile)), at), 2);
    EXPECT_EQ(width(png_chunk("iTXt", xmp_name + std::string("\0\0\0\0", 4) + xmp), at), 2);
    EXPECT_EQ(width(png_chunk("iTXt", xmp_name + std::string("\1\0\0\0", 4) + stored_zlib(xmp)), at), 2);
    EXPECT_EQ(width(png_chunk("tEXt", "Comment" + kZero + profile), at), 5);
    EXPECT_EQ(width(png_chunk("tEXt", raw_name + "\nexif"), at), 5);  // cut short
  }
}

TEST(Image, WhatIsNoImageIsNamed) {
  EXPECT_TRUE(holds(complaint(""), "found an empty file"));
  EXPECT_TRUE(holds(complaint("GIF89a......"), "found a GIF"));
  EXPECT_TRUE(holds(complaint("version https://git-lfs.github.com/spec/v1"), "Git LFS pointer"));
  EXPECT_TRUE(holds(complaint("<!DOCTYPE html><html>"), "HTML page"));
  EXPECT_TRUE(holds(complaint(std::string_view("\0\0\0 ftypavif", 12)), "HEIC/AVIF/MP4 (avif)"));
  EXPECT_TRUE(
      holds(complaint("\x01\x02\x03\x04\x05\x06\x07\x08\x09"), "9 bytes that begin with 01 02 03 04 05 06 07 08"));
}

TEST(Image, AnyCutOfAnyFileIsAnErrorOrThePicture) {
  const Json files = expected();
  for (const auto& [name, entry] : files.items()) {
    const std::string whole = fixture(name);
    for (size_t size = 0; size < whole.size(); size += std::max<size_t>(1, whole.size() / 40)) {
      const std::string text = complaint(std::string_view(whole).substr(0, size));
      // Only what stands after the pixels (PNG: checksum and end; JPEG: end marker; WebP: metadata) may be missing.
      EXPECT_TRUE(!text.empty() || size * 10 > whole.size() * 6)
          << name << " cut to " << size << " of " << whole.size();
    }
    const std::string half = complaint(std::string_view(whole).substr(0, whole.size() / 2));
    EXPECT_TRUE(holds(half, name.ends_with("webp") ? "WebP" : name.ends_with("png") ? "PNG" : "JPEG")) << name;
  }
}

TEST(Image, AJpegWithoutItsEndMarkerIsTakenButNotOneWithoutRows) {
  const std::string whole = fixture("s444.jpg");
  EXPECT_EQ(complaint(std::string_view(whole).substr(0, whole.size() - 2)), "");
  EXPECT_TRUE(holds(complaint(std::string_view(whole).substr(0, whole.size() - 40)), "the file ends before row"));
  const std::string scans = fixture("progressive.jpg");
  EXPECT_TRUE(holds(complaint(std::string_view(scans).substr(0, scans.size() - 60)), "the file ends before row"));
}

TEST(Image, DamagedBytesNeverCrash) {
  SplitMix64 random(20240607);
  const Json files = expected();
  for (const auto& [name, entry] : files.items()) {
    const std::string whole = fixture(name);
    for (int round = 0; round < 60; ++round) {
      std::string damaged = whole;
      for (int i = 0; i < 1 + round % 7; ++i) {
        damaged[static_cast<size_t>(random.below(static_cast<int64_t>(damaged.size())))] =
            static_cast<char>(random.below(256));
      }
      complaint(damaged);
    }
  }
}

TEST(Image, ASizeThatOnlyABombHasIsRefusedBeforeAllocation) {
  std::string jpeg = fixture("grey.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i = 5; i < 9; ++i) jpeg[frame + i] = '\xFD';
  EXPECT_TRUE(holds(complaint(jpeg), "expected an image of at most 178956970 pixels, found 65021x65021"));
  EXPECT_NO_THROW(check_image_size(16384, 10922, "x"));
  EXPECT_THROW(check_image_size(16384, 10923, "x"), UserError);
  EXPECT_THROW(check_image_size(0, 5, "x"), UserError);
}

TEST(Image, LoadImageNamesRowAndPath) {
  const auto message = [](const std::string& reference) -> std::string {
    try {
      load_image(reference, "train.jsonl:17");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(holds(message("/nowhere/a.png"), "train.jsonl:17: image /nowhere/a.png: no such file; hint: "));
  EXPECT_TRUE(holds(message(kFixtures.string()), "expected a file, found a folder"));
  EXPECT_TRUE(holds(message("data:image/png;base64,####"), "expected base64, found byte 0x23 at position 0 of 4"));
  EXPECT_TRUE(holds(message("data:image/png,abc"), "expected a data: URI with base64"));
  EXPECT_EQ(message((kFixtures / "rgb.png").string()), "");
}

TEST(Image, ADataUriIsTheFileItHolds) {
  const std::string uri = "data:image/png;base64," + encode_base64(fixture("rgb.png"));
  EXPECT_EQ(load_image(uri, "row").pixels, decode_image(fixture("rgb.png"), "row").pixels);
}

TEST(Image, EncodedPngComesBackExactlyAndJpegNearly) {
  const Image image = decode_image(fixture("rgb.png"), "rgb.png");
  EXPECT_EQ(decode_image(encode_png(image), "png").pixels, image.pixels);
  Image flat{.width = 17, .height = 9, .pixels = std::vector<uint8_t>(17 * 9 * 3, 120)};
  const Image back = decode_image(encode_jpeg(flat, 95), "jpeg");
  EXPECT_EQ(back.width, 17);
  for (const uint8_t value : back.pixels) EXPECT_NEAR(value, 120, 1);
}

TEST(Base64, DecodesTheStandardExamples) {
  // Source: RFC 4648, section 10.
  for (const auto& [plain, coded] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}}) {
    EXPECT_EQ(decode_base64(coded, "x"), plain);
    EXPECT_EQ(encode_base64(plain), coded);
  }
  EXPECT_EQ(decode_base64("Zm9v\nYg", "x"), "foob");
  EXPECT_EQ(decode_base64("-_8", "x"), decode_base64("+/8=", "x"));
  EXPECT_THROW(decode_base64("Zm9vY", "x"), UserError);
  EXPECT_THROW(decode_base64("Zg==Zg==", "x"), UserError);
}

TEST(ClipImage, PixelsAreThoseOfTransformersBitForBit) {
  int count = 0;
  const Json files = expected();
  for (const auto& [name, entry] : files.items()) {
    if (!entry.contains("clip")) continue;
    const Image image = decode_image(fixture(name), name);
    for (const auto& want : entry["clip"]) {
      const MediaBlock block = clip_pixels(image, read_clip_image_config(want["config"], "config"), name);
      auto shape = want["shape"].get<std::vector<int64_t>>();
      shape.insert(shape.begin(), 1);
      EXPECT_EQ(block.shape, shape) << name << want;
      EXPECT_FLOAT_EQ(block.values[0], want["first"].get<float>()) << name << want;
      EXPECT_EQ(fnv(block.values), want["hash"].get<std::string>()) << name << want;
      ++count;
    }
  }
  EXPECT_EQ(count, 28);
}

TEST(ClipImage, AConfigReadsOldAndNewSpellingsAndComesBack) {
  const auto read = [](const char* text) {
    return read_clip_image_config(Json::parse(text), "preprocessor_config.json");
  };
  EXPECT_EQ(read("{}").shortest_edge, 224);
  EXPECT_TRUE(read("{}").do_normalize);
  EXPECT_FALSE(read(R"({"do_normalize": null})").do_normalize) << "a step that is null is left out";
  EXPECT_EQ(read(R"({"size": 336, "crop_size": 330})").shortest_edge, 336);
  EXPECT_EQ(read(R"({"size": 336, "crop_size": 330})").crop_height, 330);
  EXPECT_TRUE(read(R"({"image_aspect_ratio": "pad"})").do_pad);
  EXPECT_TRUE(read(R"({"do_pad": true, "image_processor_type": "LlavaImageProcessorFast"})").do_pad);
  EXPECT_FALSE(read(R"({"do_pad": true, "image_processor_type": "CLIPImageProcessor"})").do_pad)
      << "it knows no such word";
  ClipImageConfig config = read(R"({"size": {"height": 48, "width": 40}, "do_normalize": false, "resample": 2})");
  const ClipImageConfig again = read_clip_image_config(clip_image_config_json(config), "again");
  EXPECT_EQ(again.shortest_edge, 0);
  EXPECT_EQ(again.height, 48);
  EXPECT_EQ(again.width, 40);
  EXPECT_FALSE(again.do_normalize);
  EXPECT_EQ(again.resample, Resample::kBilinear);
}

TEST(ClipImage, AFolderSaysWhoseArithmeticIsFollowed) {
  const auto backend = [](const char* text) { return read_clip_image_config(Json::parse(text), "file").backend; };
  for (const char* torch :
       {"{}", R"({"use_fast": true})", R"({"use_fast": null})", R"({"image_processor_type": "CLIPImageProcessor"})",
        R"({"image_processor_type": "CLIPImageProcessorFast"})",
        R"({"image_processor_type": "CLIPImageProcessorPil", "use_fast": true})"}) {
    EXPECT_EQ(backend(torch), ImageBackend::kTorchvision) << torch;
  }
  for (const char* pillow : {R"({"use_fast": false})", R"({"image_processor_type": "CLIPImageProcessorPil"})",
                             R"({"image_aspect_ratio": "pad"})",
                             R"({"image_processor_type": "CLIPImageProcessorFast", "use_fast": false})"}) {
    EXPECT_EQ(backend(pillow), ImageBackend::kPillow) << pillow;
    const Json written = clip_image_config_json(read_clip_image_config(Json::parse(pillow), "file"));
    EXPECT_EQ(read_clip_image_config(written, "written").backend, ImageBackend::kPillow) << pillow;
  }
}

TEST(ClipImage, APictureThatResizingWouldBlowUpIsRefused) {
  const auto message = [](const ClipImageConfig& config) -> std::string {
    try {
      clip_pixels(drawn_image("noise", 20000, 1, 0), config, "row 3: image a.png");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(holds(message({}),
                    "row 3: image a.png: expected a picture of at most 178956970 pixels once its shorter "
                    "edge is 224, found 20000x1"));
  ClipImageConfig padded;
  padded.do_pad = true;
  EXPECT_TRUE(holds(message(padded), "once padded to a square, found 20000x1"));
}

TEST(ClipImage, AWrongConfigNamesItsKey) {
  const auto message = [](const char* text) -> std::string {
    try {
      read_clip_image_config(Json::parse(text), "preprocessor_config.json");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(holds(message(R"({"size": "big"})"), "preprocessor_config.json: size: expected a number"));
  EXPECT_TRUE(holds(message(R"({"size": {"shortest_edge": 0}})"), "a size in pixels"));
  EXPECT_TRUE(holds(message(R"({"image_std": [1, 0, 1]})"), "image_std: expected numbers of 1e-6 to 1e6"));
  EXPECT_TRUE(holds(message(R"({"image_mean": [1]})"), "image_mean: expected a list of three numbers, found [1]"));
  EXPECT_TRUE(holds(message(R"({"resample": 9})"), "resample"));
  EXPECT_TRUE(holds(message(R"({"use_fast": "no"})"), "use_fast: expected true or false"));
  EXPECT_TRUE(holds(message(R"({"image_aspect_ratio": "anyres"})"), "found \"anyres\""));
}

}  // namespace
}  // namespace lockstep
