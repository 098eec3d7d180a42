#include "lockstep/text/sentencepiece/model_file.h"

#include <array>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/sentencepiece/wire_reader.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

constexpr size_t kMaxModelBytes = size_t{32} << 20;  // the largest that are published have 5 MB

struct Trainer {
  uint64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 char
  bool whitespace_as_suffix = false;
};

PieceType type_of(uint64_t number, const std::string& where) {
  if (number >= 1 && number <= 6) return static_cast<PieceType>(number);
  throw checkpoint_error(fmt::format("{}: expected a type from 1 to 6, found {}", where, number));
}

PieceEntry read_piece(std::string_view message, const std::string& where) {
  PieceEntry piece;
  WireReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == 1) piece.text = bytes_of(*field, where);
    if (field->number == 2) piece.score = float_of(*field, where);
    if (field->number == 3) piece.type = type_of(varint_of(*field, where), where);
  }
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    throw checkpoint_error(
        fmt::format("{}: expected a text of 1 to {} bytes, found {}", where, kMaxPieceBytes, piece.text.size()));
  }
  if (!is_valid_utf8(piece.text)) {
    throw checkpoint_error(fmt::format("{}: expected UTF-8, found \"{}\"", where, cut_text(repair_utf8(piece.text))));
  }
  if (!std::isfinite(piece.score)) {
    throw checkpoint_error(
        fmt::format("{} (\"{}\"): expected a finite score, found {}", where, cut_text(piece.text), piece.score));
  }
  return piece;
}

// A message that stands twice is one, of which the later fields hold.
void read_trainer(std::string_view message, Trainer& trainer, PieceModelFile& file) {
  const std::string where = file.path + ": trainer_spec";
  WireReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == 3) trainer.model_type = varint_of(*field, where);
    if (field->number == 24) trainer.whitespace_as_suffix = varint_of(*field, where) != 0;
    if (field->number == 35) file.byte_fallback = varint_of(*field, where) != 0;
    if (field->number == 44) file.unknown_surface = bytes_of(*field, where);
  }
}

void read_normalization(std::string_view message, PieceNormalization& out, const std::string& where) {
  WireReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == 2) out.charsmap = bytes_of(*field, where);
    if (field->number == 3) out.add_dummy_prefix = varint_of(*field, where) != 0;
    if (field->number == 4) out.remove_extra_whitespaces = varint_of(*field, where) != 0;
    if (field->number == 5) out.escape_whitespaces = varint_of(*field, where) != 0;
  }
}

void check_supported(const Trainer& trainer, const PieceNormalization& back, const PieceModelFile& file) {
  static constexpr std::array kTypes = {"", "unigram", "BPE", "word", "char"};
  if (trainer.model_type != 2) {
    const std::string name =
        trainer.model_type < kTypes.size() ? kTypes.at(trainer.model_type) : std::to_string(trainer.model_type);
    throw checkpoint_error(fmt::format("{}: trainer_spec.model_type: expected BPE, found {}", file.path, name),
                           "only byte-pair models are read; a model of another type needs another tokenizer");
  }
  if (trainer.whitespace_as_suffix) {
    throw checkpoint_error(
        fmt::format("{}: trainer_spec.treat_whitespace_as_suffix: expected false, found true", file.path));
  }
  if (!back.charsmap.empty()) {
    throw checkpoint_error(fmt::format("{}: denormalizer_spec: expected no rules, found {} bytes of them", file.path,
                                       back.charsmap.size()));
  }
  if (!is_valid_utf8(file.unknown_surface) || file.unknown_surface.size() > kMaxPieceBytes) {
    throw checkpoint_error(
        fmt::format("{}: trainer_spec.unk_surface: expected at most {} bytes of UTF-8", file.path, kMaxPieceBytes));
  }
}

void check_pieces(const PieceModelFile& file) {
  std::unordered_set<std::string_view> seen;
  std::array<bool, 256> bytes{};
  size_t unknown = 0;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const PieceEntry& piece = file.pieces[i];
    const auto where = [&] { return fmt::format("{}: piece {} (\"{}\")", file.path, i, cut_text(piece.text)); };
    if (!seen.insert(piece.text).second) throw checkpoint_error(where() + ": an earlier piece is the same text");
    if (piece.type == PieceType::kUnknown) ++unknown;
    if (piece.type != PieceType::kByte) continue;
    const int byte = byte_of_piece(piece.text);
    if (byte < 0) throw checkpoint_error(where() + ": expected the name of a byte, such as <0x0A>");
    if (!file.byte_fallback) {
      throw checkpoint_error(where() + ": expected no byte pieces where trainer_spec.byte_fallback is false");
    }
    bytes.at(static_cast<size_t>(byte)) = true;
  }
  if (unknown != 1) {
    throw checkpoint_error(fmt::format("{}: expected one unknown piece (<unk>), found {}", file.path, unknown));
  }
  if (!file.byte_fallback) return;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes.at(i)) continue;
    throw checkpoint_error(
        fmt::format("{}: trainer_spec.byte_fallback is true, and the piece <0x{:02X}> is missing", file.path, i));
  }
}

// What people find in place of a model, and why it is none.
void refuse_other_files(std::string_view bytes, const std::string& where) {
  if (bytes.starts_with("version https://git-lfs")) {
    throw checkpoint_error(where + ": expected a SentencePiece model, found a pointer of Git LFS",
                           "fetch the file itself: git lfs pull");
  }
  if (bytes.starts_with("IQ== 0")) {
    throw checkpoint_error(where + ": expected a SentencePiece model, found ranks of tiktoken",
                           "take the folder of this model that has a tokenizer.json");
  }
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  const size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
  return high == std::string_view::npos || low == std::string_view::npos ? -1 : static_cast<int>(high * 16 + low);
}

PieceModelFile parse_piece_model(std::string_view bytes, const std::string& where) {
  refuse_other_files(bytes, where);
  PieceModelFile file;
  file.path = where;
  Trainer trainer;
  PieceNormalization back;  // from pieces to text
  WireReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      file.pieces.push_back(
          read_piece(bytes_of(*field, where), fmt::format("{}: piece {}", where, file.pieces.size())));
    }
    if (field->number == 2) read_trainer(bytes_of(*field, where), trainer, file);
    if (field->number == 3)
      read_normalization(bytes_of(*field, where), file.normalization, where + ": normalizer_spec");
    if (field->number == 5) read_normalization(bytes_of(*field, where), back, where + ": denormalizer_spec");
  }
  check_supported(trainer, back, file);
  check_pieces(file);
  return file;
}

PieceModelFile read_piece_model(const std::filesystem::path& path) {
  return parse_piece_model(read_text(path, kMaxModelBytes), path.string());
}

}  // namespace lockstep
