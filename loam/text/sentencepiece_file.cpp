// SentencePiece's `.model`: a ModelProto of sentencepiece_model.proto, whose field numbers stand here as constants.
#include <cmath>
#include <limits>
#include <protozero/pbf_reader.hpp>
#include <unordered_set>

#include "loam/base/error.h"
#include "loam/base/utf8.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/sentencepiece_rules.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

using Wire = protozero::pbf_wire_type;

constexpr uint32_t field(protozero::pbf_tag_type tag, Wire wire) { return protozero::tag_and_type(tag, wire); }

struct SentencePiece {
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  std::string text;
  float score = 0;
  int64_t type = kNormal;
};

struct SentencePieceFile {
  static constexpr int64_t kUnigram = 1, kBpe = 2;
  std::vector<SentencePiece> pieces;
  int64_t model_type = kUnigram;
  bool byte_fallback = false, space_as_suffix = false;
  std::string bos_piece = "<s>", eos_piece = "</s>";
  std::string charsmap, denormalizer_charsmap;
  bool add_dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
};

std::string text_of(protozero::pbf_reader& message) {
  const auto view = message.get_view();
  return std::string(view.data(), view.size());
}

SentencePiece read_piece(protozero::pbf_reader message) {
  SentencePiece piece;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case field(1, Wire::length_delimited):
        piece.text = text_of(message);
        break;
      case field(2, Wire::fixed32):
        piece.score = message.get_float();
        break;
      case field(3, Wire::varint):
        piece.type = message.get_int64();
        break;
      default:
        message.skip();
    }
  }
  return piece;
}

void read_trainer_spec(protozero::pbf_reader message, SentencePieceFile& file) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case field(3, Wire::varint):
        file.model_type = message.get_int64();
        break;
      case field(24, Wire::varint):
        file.space_as_suffix = message.get_uint64() != 0;
        break;
      case field(35, Wire::varint):
        file.byte_fallback = message.get_uint64() != 0;
        break;
      case field(46, Wire::length_delimited):
        file.bos_piece = text_of(message);
        break;
      case field(47, Wire::length_delimited):
        file.eos_piece = text_of(message);
        break;
      default:
        message.skip();
    }
  }
}

void read_normalizer_spec(protozero::pbf_reader message, SentencePieceFile& file) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case field(2, Wire::length_delimited):
        file.charsmap = text_of(message);
        break;
      case field(3, Wire::varint):
        file.add_dummy_prefix = message.get_uint64() != 0;
        break;
      case field(4, Wire::varint):
        file.remove_extra_spaces = message.get_uint64() != 0;
        break;
      case field(5, Wire::varint):
        file.escape_spaces = message.get_uint64() != 0;
        break;
      default:
        message.skip();
    }
  }
}

std::string denormalizer_charsmap(protozero::pbf_reader message) {
  SentencePieceFile file;
  read_normalizer_spec(message, file);
  return file.charsmap;
}

SentencePieceFile read_model(std::string_view bytes, std::string_view source) {
  SentencePieceFile file;
  try {
    protozero::pbf_reader message(bytes.data(), bytes.size());
    while (message.next()) {
      switch (message.tag_and_type()) {
        case field(1, Wire::length_delimited):
          file.pieces.push_back(read_piece(message.get_message()));
          break;
        case field(2, Wire::length_delimited):
          read_trainer_spec(message.get_message(), file);
          break;
        case field(3, Wire::length_delimited):
          read_normalizer_spec(message.get_message(), file);
          break;
        case field(5, Wire::length_delimited):
          file.denormalizer_charsmap = denormalizer_charsmap(message.get_message());
          break;
        default:
          message.skip();
      }
    }
  } catch (const protozero::exception& error) {
    fail(ErrorCode::kBadFormat, "{}: no SentencePiece model: {}", source, error.what());
  }
  return file;
}

void check_file(const SentencePieceFile& file, std::string_view source) {
  const auto refuse = [&](const std::string& what) { fail(ErrorCode::kBadFormat, "{}: {}", source, what); };
  if (file.pieces.empty()) refuse("no SentencePiece model: it has no pieces");
  if (file.model_type != SentencePieceFile::kUnigram && file.model_type != SentencePieceFile::kBpe)
    refuse(
        fmt::format("model type {} of SentencePiece is not supported, only 1 (unigram) and 2 (bpe)", file.model_type));
  if (file.space_as_suffix) refuse("treat_whitespace_as_suffix is not supported");
  if (!file.denormalizer_charsmap.empty()) refuse("a denormalizer is not supported");
  std::unordered_set<std::string_view> texts;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePiece& piece = file.pieces[i];
    if (piece.text.empty() || piece.text.find('\0') != std::string::npos)
      refuse(fmt::format("piece {} is empty or holds a zero byte", i));
    if (piece.type < SentencePiece::kNormal || piece.type > SentencePiece::kByte)
      refuse(fmt::format("piece {} is of the type {}", i, piece.type));
    if (!std::isfinite(piece.score)) refuse(fmt::format("the score of piece {} is {}", i, piece.score));
    if (!texts.insert(piece.text).second)
      refuse(fmt::format("the piece \"{}\" is there twice", printable(piece.text, false, 64)));
    if (piece.type == SentencePiece::kUnused && file.model_type == SentencePieceFile::kBpe)
      refuse(fmt::format("piece {} is unused, which is not supported in BPE", i));
  }
}

void set_rules(const SentencePieceFile& file, TokenizerRules& rules, std::string_view source) {
  std::vector<std::string> kept;
  for (const SentencePiece& piece : file.pieces) {
    if (piece.type == SentencePiece::kUserDefined) kept.push_back(piece.text);
  }
  try {
    rules.normalizer =
        sentencepiece_normalizer(file.charsmap, std::move(kept), file.remove_extra_spaces, file.escape_spaces);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", source, error.what());
  }
  rules.space.prefix = file.add_dummy_prefix ? SpaceRule::Prefix::kFirst : SpaceRule::Prefix::kNever;
  rules.decode.drop_first_space = file.add_dummy_prefix || file.remove_extra_spaces;
}

// Of a user-defined piece: its own formula, so that such a piece always wins.
float score_of(const SentencePiece& piece) {
  if (piece.type == SentencePiece::kUserDefined)
    return static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
  return piece.type == SentencePiece::kUnused ? -std::numeric_limits<float>::infinity() : piece.score;
}

// Unigram finds such a piece by its score.
void add_user_defined(SpmModel& model, int32_t id) { model.user_defined.push_back(id); }
void add_user_defined(UnigramModel&, int32_t) {}

// What both kinds have in common.
template <class Model>
Model take_pieces(const SentencePieceFile& file, std::string_view source) {
  Model model;
  set_rules(file, model, source);
  model.unknown_id = model.first_byte_id = -1;
  model.space_marks = file.escape_spaces;
  for (const SentencePiece& piece : file.pieces) {
    const auto id = static_cast<int32_t>(model.tokens.size());
    std::string text = piece.text;
    const bool control = piece.type == SentencePiece::kControl || piece.type == SentencePiece::kUnknown;
    const bool marked = file.escape_spaces && text.find(kSpaceMark) != std::string::npos;
    if (marked && !control) text = with_plain_spaces(text);
    if (piece.type == SentencePiece::kUnknown) {
      if (model.unknown_id >= 0) fail(ErrorCode::kBadFormat, "{}: two pieces are the unknown one", source);
      model.unknown_id = id;
    }
    if (piece.type == SentencePiece::kByte && model.first_byte_id < 0) model.first_byte_id = id;
    if (control) model.specials.push_back({.text = text, .id = id});
    if (piece.type == SentencePiece::kUserDefined) add_user_defined(model, id);
    model.tokens.push_back(std::move(text));
    model.scores.push_back(score_of(piece));
  }
  if (file.byte_fallback != (model.first_byte_id >= 0))
    fail(ErrorCode::kBadFormat, "{}: byte_fallback is {}, but there are {}byte pieces", source, file.byte_fallback,
         file.byte_fallback ? "no " : "");
  if (model.unknown_id < 0 && !file.byte_fallback) fail(ErrorCode::kBadFormat, "{}: no unknown piece", source);
  return model;
}

int32_t control_id(const SentencePieceFile& file, std::string_view text) {
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    if (file.pieces[i].type == SentencePiece::kControl && file.pieces[i].text == text) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace

Tokenizer parse_sentencepiece(std::string_view bytes, std::string_view source) {
  const SentencePieceFile file = read_model(bytes, source);
  check_file(file, source);
  if (file.model_type == SentencePieceFile::kUnigram) {
    UnigramModel model = take_pieces<UnigramModel>(file, source);
    model.float_sums = true;
    return make_tokenizer(std::move(model), source);
  }
  SpmModel model = take_pieces<SpmModel>(file, source);
  model.bos_id = control_id(file, file.bos_piece);
  model.eos_id = control_id(file, file.eos_piece);
  return make_tokenizer(std::move(model), source);
}

Tokenizer load_sentencepiece(const Path& path) {
  return parse_sentencepiece(read_file(path, kMaxTokenizerBytes), path.string());
}

}  // namespace loam
