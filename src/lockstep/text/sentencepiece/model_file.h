// A SentencePiece model as read from disk (`tokenizer.model`): its pieces, and the settings that decide ids and text.
//
// Source: sentencepiece_model.proto of SentencePiece 0.2 (ModelProto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct PieceEntry {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct PieceNormalization {
  std::string charsmap;  // precompiled; empty: none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

struct PieceModelFile {
  std::string path;                // named in errors
  std::vector<PieceEntry> pieces;  // by id
  PieceNormalization normalization;
  bool byte_fallback = false;
  std::string unknown_surface = " \xE2\x81\x87 ";  // what the unknown piece is decoded to
};

inline constexpr size_t kMaxPieceBytes = 512;  // of one piece: trainers stop at 16 characters unless told otherwise

/// Reads and checks a BPE model: every piece is text that no other piece is, every score a number, one piece is the unknown
/// one, byte pieces are all there or none is needed. Throws UserError(kCheckpoint) that names file and piece.
PieceModelFile read_piece_model(const std::filesystem::path& path);
/// As read_piece_model, of bytes that were read already.
PieceModelFile parse_piece_model(std::string_view bytes, const std::string& where);

/// The byte that "<0x0A>" stands for; -1 for any other text.
int byte_of_piece(std::string_view piece);

}  // namespace lockstep
