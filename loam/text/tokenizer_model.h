// What defines a tokenizer: the rules round the model, and the five kinds of model.
//
//   text --added tokens--> segments --normalizer, space rule--> text --pre-tokenizer--> pieces --model--> ids
//
// The stages are those of Hugging Face's library `tokenizers`; files of other programs are read into them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loam/text/normalizer.h"
#include "loam/text/pretokenizer.h"

namespace loam {

using Merge = std::pair<int32_t, int32_t>;  // ids of the two parts

inline constexpr size_t kMaxSpecialBytes = 1024;

// A token that is found in text before anything else, and never cut.
struct SpecialToken {
  std::string text;
  int32_t id;
  bool always = false;       // an added word of ordinary text, not a control token: matched under every policy
  bool single_word = false;  // only between characters that are neither letters, numbers nor '_'
  bool lstrip = false, rstrip = false;  // takes the white space before, or behind, with it
  bool normalized = false;              // looked for in the normalized text, after the other ones

  bool operator==(const SpecialToken&) const = default;
};

// What becomes of spaces behind the normalizer, where words are known with the space before them.
struct SpaceRule {
  enum class Prefix { kNever, kFirst, kEach };
  // One space in front: at the very beginning of the text only, or of each segment between added tokens.
  Prefix prefix = Prefix::kNever;
  // None where a space is there already; then what stands between added tokens of normalized text is a segment too.
  bool unless_space = false;
  // The text is a list of words with white space between them, each of which gets its space; U+2581 is one.
  bool words = false;

  bool operator==(const SpaceRule&) const = default;
};

// Where the tokens of one text, or of a pair of texts, and control tokens stand in a sequence: "<s> A", "[CLS] A [SEP]
// B [SEP]". Encoding never applies it by itself: see Tokenizer::frame().
struct SequenceTemplate {
  struct Item {
    enum class Kind { kToken, kFirst, kSecond };
    Kind kind = Kind::kToken;
    int32_t id = -1;      // of kToken
    int32_t type_id = 0;  // of every token that it stands for

    bool operator==(const Item&) const = default;
  };
  std::vector<Item> single, pair;  // empty: the text alone, or one after the other

  bool operator==(const SequenceTemplate&) const = default;
};
// One token in front of a text, and of both texts of a pair.
SequenceTemplate begins_with(int32_t id);

// What decoding does beyond putting the bytes of the tokens one after the other.
struct DecodeRule {
  bool drop_first_space = false;  // the one that the space rule put in front
  bool clean_up = false;          // WordPiece: no space before . ? ! , n't 'm 's 've 're

  bool operator==(const DecodeRule&) const = default;
};

// The part that all kinds share.
struct TokenizerRules {
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  SpaceRule space;
  std::vector<SpecialToken> specials;
  SequenceTemplate frame;
  DecodeRule decode;
};

// SentencePiece's: no splits, a space in front of each segment, which decoding drops. U+2581 in text is a space.
TokenizerRules sentencepiece_rules();

// Byte-level BPE: GPT-2, Llama 3, Qwen, DeepSeek.
struct BpeModel : TokenizerRules {
  std::vector<std::string> tokens;  // by id, as bytes (for a special token its text); "" for an id that no token has
  std::vector<Merge> merges;        // by rank; ids of the parts and, in the same order, of the result
  std::vector<int32_t> merge_ids;
  bool ignore_merges = false;  // a piece that is a token stays one, whether merges make it or not (Llama 3)
};

// BPE over characters with scores, of SentencePiece (Kudo and Richardson, EMNLP 2018): Llama 2, Mistral, Gemma, Phi-3.
// The adjacent pair whose joined piece has the highest score merges first, the leftmost of equals. A character that no
// token covers becomes its bytes <0x00> ... <0xFF>, or the unknown token. Parts merge only if both are tokens.
struct SpmModel : TokenizerRules {
  SpmModel();  // with sentencepiece_rules()
  std::vector<std::string>
      tokens;  // by id, with a plain space where SentencePiece writes U+2581; byte tokens as their text "<0x0A>"
  std::vector<float> scores;
  bool lists_merges = false;  // `merges`, by rank, with the tokens that they make, take the place of the scores
  std::vector<Merge> merges;
  std::vector<int32_t> merge_ids;
  int32_t unknown_id = 0, bos_id = 1, eos_id = 2;
  int32_t first_byte_id = 3;          // of 256 byte tokens in a row; -1 without byte fallback
  bool fuse_unknown = true;           // unknown characters that follow each other are one token
  bool space_marks = true;            // files write U+2581 for a space in tokens
  std::vector<int32_t> user_defined;  // found before anything merges, the longest first, and never merged
};

// Unigram language model (Kudo, ACL 2018): T5, ALBERT, XLNet, XLM-R. The segmentation of the greatest sum of scores
// (log probabilities), found by Viterbi's algorithm; of equal ones that whose last token, at each end from the left, is
// the longest. A character that no token covers is unknown, at 10 below the least score. A token at minus infinity is
// never made.
struct UnigramModel : TokenizerRules {
  UnigramModel();                   // with sentencepiece_rules()
  std::vector<std::string> tokens;  // as in SpmModel
  std::vector<double> scores;       // of the first of them; the tokens behind are added tokens, never made from text
  int32_t unknown_id = 0;           // -1: none; then every character must be a token or have bytes
  int32_t first_byte_id = -1;
  bool space_marks = true;
  bool float_sums = false;  // sums are floats, as in SentencePiece itself: rounding decides between equal ones
};

// WordPiece (Schuster and Nakajima, ICASSP 2012): BERT. The longest token first; a piece that cannot be covered, or is
// too long, is unknown as a whole.
struct WordPieceModel : TokenizerRules {
  std::vector<std::string> tokens;  // by id, as the file states them
  std::string prefix = "##";        // of tokens that continue a word
  int32_t unknown_id = 0;
  int64_t max_characters = 100;  // of a piece
  int64_t own_tokens = -1;       // the tokens behind so many are added tokens, never made from text; -1: there are none
};

// Whole pieces only: words, or characters.
struct WordModel : TokenizerRules {
  std::vector<std::string> tokens;
  int32_t unknown_id = 0;
  int64_t own_tokens = -1;  // as in WordPieceModel
  bool spaces = true;       // decoding puts a space in front of each token
};

using TokenizerModel = std::variant<BpeModel, SpmModel, UnigramModel, WordPieceModel, WordModel>;

}  // namespace loam
