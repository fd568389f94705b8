// A tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/bpe_train.h"
#include "loam/text/pretokenizer.h"

namespace loam {

// Which special tokens (control tokens such as <|endoftext|>) a call may produce from text. All others are encoded as
// the ordinary text that they are, so counting or encoding a document never fails and never yields a control id that
// the caller did not ask for.
class SpecialPolicy {
 public:
  static SpecialPolicy none() { return SpecialPolicy(false, {}); }
  static SpecialPolicy all() { return SpecialPolicy(true, {}); }
  static SpecialPolicy only(std::vector<std::string> allowed) { return SpecialPolicy(false, std::move(allowed)); }
  bool allows(std::string_view token) const;
  bool allows_none() const { return !all_ && allowed_.empty(); }

 private:
  SpecialPolicy(bool all, std::vector<std::string> allowed) : all_(all), allowed_(std::move(allowed)) {}
  bool all_;
  std::vector<std::string> allowed_;
};

struct SpecialToken {
  std::string text;
  int32_t id;
  bool always = false;  // an added word of ordinary text, not a control token: matched under every policy
};

// Everything that defines a byte-level BPE tokenizer.
struct BpeModel {
  Pretokenizer pretokenizer;
  std::vector<std::string> tokens;  // by id, as bytes (for a special token its text); "" for an id that no token has
  std::vector<Merge> merges;        // by rank; ids of the parts and, in the same order, of the result
  std::vector<int32_t> merge_ids;
  std::vector<SpecialToken> specials;
  int32_t bos_id = -1;  // see Tokenizer::bos_id
};

// A SentencePiece BPE vocabulary with scores (Kudo and Richardson, EMNLP 2018), as Llama 2 and llama2.c use it: the
// adjacent pair whose joined piece has the highest score merges first, the leftmost of equals. A character that no
// token covers becomes its bytes <0x00> ... <0xFF>; so does U+2581 itself, which keeps decoding lossless. Parts merge
// only if both are tokens.
struct SpmModel {
  std::vector<std::string>
      tokens;  // by id, with a plain space where SentencePiece writes U+2581; byte tokens as their text "<0x0A>"
  std::vector<float> scores;
  int32_t unknown_id = 0, bos_id = 1, eos_id = 2;
  int32_t first_byte_id = 3;  // of 256 byte tokens in a row; -1 without byte fallback
  bool add_space_prefix =
      true;  // one space before non-empty text, and again after each special token; decode() returns it
};

// Puts the tokens that training made in loam's order: the 256 bytes, the merges, the special tokens last.
BpeModel make_bpe_model(std::vector<Merge> merges, const std::vector<std::string>& special_tokens,
                        Pretokenizer pretokenizer);

// Thread safety: all const members may be called from any thread.
class Tokenizer {
 public:
  // Error{kBadFormat} if a byte has no token, an id is out of range, or a merge does not make its token.
  explicit Tokenizer(BpeModel model);
  explicit Tokenizer(SpmModel model);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  int64_t vocab_size() const;   // the largest id plus one
  const BpeModel* bpe() const;  // null for another kind
  const SpmModel* spm() const;

  // Any bytes are accepted. Special tokens that `policy` allows match first, the longest one at a place. Within a
  // piece, the pair of lowest rank merges first, the leftmost of equals, until none is left. Time is linear in text for
  // each piece up to a logarithm; no recursion.
  std::vector<int32_t> encode(std::string_view text, const SpecialPolicy& policy = SpecialPolicy::none()) const;
  void encode(std::string_view text, const SpecialPolicy& policy, std::vector<int32_t>& out) const;  // appends
  int64_t count(std::string_view text) const;
  // True only where the text before and the text from `position` on, encoded without special tokens each for itself,
  // have the ids of the whole: 0 < position < text.size(). Looks at two bytes; never true for a SentencePiece model.
  bool is_independent_cut(std::string_view text, size_t position) const;

  // The bytes of the tokens one after the other; these may end inside a character. Error{kInvalidArgument} for an id
  // that has no token.
  std::string decode(std::span<const int32_t> ids) const;
  const std::string& token_bytes(int32_t id) const;
  int32_t special_id(std::string_view text) const;  // -1 if there is no such special token
  bool is_special(int32_t id) const;
  // The token that some models want in front of every sequence (<s> of Llama 2); -1 if none. encode() never adds it.
  int32_t bos_id() const;
  // The token that ends a document: <|endoftext|>, </s> or <|end_of_text|>, whichever there is; -1 if none.
  int32_t end_of_text_id() const;

  // A hash of everything that decides ids; token shards carry it.
  std::string fingerprint() const;

 private:
  friend class StreamEncoder;
  struct State;
  std::unique_ptr<State> state_;
};

// Encodes a stream piece by piece with the ids of the whole text, in constant memory (but for a piece longer than the
// buffer, which must be held).
class StreamEncoder {
 public:
  // `tokenizer` must outlive it. Ids come once `hold_bytes` of text wait.
  StreamEncoder(const Tokenizer& tokenizer, SpecialPolicy policy, size_t hold_bytes = size_t{1} << 16);
  ~StreamEncoder();
  StreamEncoder(StreamEncoder&&) noexcept;
  StreamEncoder& operator=(StreamEncoder&&) noexcept;

  void push(std::string_view bytes,
            std::vector<int32_t>& out);    // appends ids that are certain; up to 64 KiB of text may wait
  void finish(std::vector<int32_t>& out);  // appends the rest; the next push begins a new text

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
