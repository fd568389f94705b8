// A tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/tokenizer_model.h"

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
  bool allows_all() const { return all_; }

 private:
  SpecialPolicy(bool all, std::vector<std::string> allowed) : all_(all), allowed_(std::move(allowed)) {}
  bool all_;
  std::vector<std::string> allowed_;
};

// Puts the tokens that training made in loam's order: the 256 bytes, the merges, the special tokens last.
BpeModel make_bpe_model(std::vector<Merge> merges, const std::vector<std::string>& special_tokens,
                        Pretokenizer pretokenizer);

// Ids, and the bytes of the text that each of them stands for: an empty range for what stands for none (a space put in
// front). Several tokens may share the bytes of one character.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;
};

// Thread safety: all const members may be called from any thread.
class Tokenizer {
 public:
  // Error{kBadFormat} if the parts of the model contradict each other: ids out of range, no token for a printable
  // character of ASCII, a merge that does not make its token, ...
  explicit Tokenizer(TokenizerModel model);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  int64_t vocab_size() const;        // the largest id plus one
  bool has_token(int32_t id) const;  // false for ids outside, and for those that no token has
  const TokenizerModel& model() const;
  const TokenizerRules& rules() const;
  const BpeModel* bpe() const;  // null for another kind
  const SpmModel* spm() const;
  // decode(encode(x)) == x for every x without control tokens. A SentencePiece model with byte tokens is, WordPiece is
  // not; nor byte-level BPE without tokens for some bytes: those that are in no UTF-8 become U+FFFD, others are left
  // out.
  bool lossless() const;

  // Any bytes are accepted. Special tokens that `policy` allows match first, the longest one at a place. Time is linear
  // in text for each piece up to a logarithm; no recursion. Error{kInvalidArgument} only where the tokenizer itself
  // sets a limit: a character that neither a token nor the unknown token covers, a regex that gives up, a normalizer
  // that blows the text up.
  std::vector<int32_t> encode(std::string_view text, const SpecialPolicy& policy = SpecialPolicy::none()) const;
  void encode(std::string_view text, const SpecialPolicy& policy, std::vector<int32_t>& out) const;  // appends
  // Control tokens match only where they lie wholly inside one of the `trusted` ranges, and are ordinary text
  // elsewhere: a chat template trusts what it wrote itself, not what users said. Ends of ranges do not cut ordinary
  // text. Error{kInvalidArgument} unless ranges are ascending, apart from each other and inside the text.
  std::vector<int32_t> encode(std::string_view text, std::span<const TextRange> trusted) const;
  Encoding encode_with_ranges(std::string_view text, const SpecialPolicy& policy = SpecialPolicy::none()) const;
  // Each text for itself, on `threads` threads.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts, const SpecialPolicy& policy,
                                                 int threads) const;
  int64_t count(std::string_view text) const;
  // True only where the text before and the text from `position` on, encoded without special tokens each for itself,
  // have the ids of the whole: 0 < position < text.size(). Looks at two bytes; never true for a SentencePiece model.
  bool is_independent_cut(std::string_view text, size_t position) const;

  // The ids of a sequence, with the control tokens that the tokenizer's template puts round it: <s>, [CLS], [SEP].
  // `types` (or null) takes a type id for each. encode() adds none of them.
  std::vector<int32_t> frame(std::span<const int32_t> ids, std::vector<int32_t>* types = nullptr) const;
  std::vector<int32_t> frame(std::span<const int32_t> first, std::span<const int32_t> second,
                             std::vector<int32_t>* types = nullptr) const;

  // The text of a whole sequence: the bytes of the tokens one after the other, without the space that encoding put in
  // front; these may end inside a character. Error{kInvalidArgument} for an id that has no token.
  std::string decode(std::span<const int32_t> ids) const;
  // The bytes of a token inside a text: of one that begins a word with the space before it.
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

// Ranges of bytes as ranges of characters (code points; a byte that is not valid UTF-8 counts as one).
std::vector<TextRange> character_ranges(std::string_view text, std::span<const TextRange> byte_ranges);

// Takes ids, part by part.
using IdSink = std::function<void(std::span<const int32_t>)>;

// Encodes a stream piece by piece with the ids of the whole text, in constant memory, but for a piece longer than the
// buffer, which must be held. Text whose normalizer looks at its ends, or at more than one space (SentencePiece's
// removal of extra spaces), and a Unigram model with sums in floats cannot be cut: all of it is held.
class StreamEncoder {
 public:
  // `tokenizer` must outlive it. Ids come once `hold_bytes` of text wait.
  StreamEncoder(const Tokenizer& tokenizer, SpecialPolicy policy, size_t hold_bytes = size_t{1} << 16, int threads = 1);
  ~StreamEncoder();
  StreamEncoder(StreamEncoder&&) noexcept;
  StreamEncoder& operator=(StreamEncoder&&) noexcept;

  void push(std::string_view bytes, std::vector<int32_t>& out);  // appends ids that are certain
  void finish(std::vector<int32_t>& out);                        // appends the rest; the next push begins a new text

  // Instead of push(), for several threads and who keeps the bytes: hands out the ids of what no continuation of `text`
  // can change, or, with `final`, of all (then a new text begins), and returns how many bytes that was; the rest must
  // come again in front of more, of twice as much where nothing could be cut, or the total time is not linear. `sink`
  // and, before this thread takes its part in encoding, `meanwhile` run on the calling thread; other threads read
  // `text` meanwhile. The ids are the same for any number of threads. Errors as of encode(), behind the ids of the
  // parts before; then, and with push(), the encoder must not be used on.
  size_t encode_front(std::string_view text, bool final, const IdSink& sink, const std::function<void()>& meanwhile);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
