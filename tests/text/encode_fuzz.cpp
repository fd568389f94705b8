// Any bytes as text: encoding and decoding lose nothing, and streams cut anywhere give the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "loam/base/log.h"
#include "loam/base/utf8.h"
#include "loam/text/bpe_train.h"
#include "loam/text/stream_decode.h"
#include "loam/text/tokenizer.h"

namespace {

using namespace loam;

Tokenizer make_bpe() {
  set_log_level(LogLevel::kOff);
  BpeTrainOptions options;
  options.vocab_size = 300;
  options.min_frequency = 1;
  BpeTrainer trainer(options);
  trainer.add_document("the cat ate the hat, aaaa aa's  \n\n  \xe4\xbd\xa0\xe4\xbd\xa0 12 12");
  return Tokenizer(make_bpe_model(trainer.train(), {"<|end|>", "<|", "<|end|>x"}, options.pretokenizer));
}

Tokenizer make_spm() {
  SpmModel model;
  model.tokens = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) model.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  for (const char* token : {" ", "t", "h", "e", "a", "\xe4\xbd\xa0", "th", "the", " the", "aa", "  ", "e "})
    model.tokens.emplace_back(token);
  for (size_t i = 0; i < model.tokens.size(); ++i) model.scores.push_back(-static_cast<float>(i % 7));
  return Tokenizer(std::move(model));
}

void check(const Tokenizer& tokenizer, const SpecialPolicy& policy, std::string_view text, size_t part) {
  const std::vector<int32_t> ids = tokenizer.encode(text, policy);
  const std::string bytes = tokenizer.decode(ids);
  // A SentencePiece model takes U+2581 for a space, and drops the space that it put behind a control token.
  const bool keeps = tokenizer.bpe() || (policy.allows_none() && text.find("\xE2\x96\x81") == std::string_view::npos);
  if (keeps && bytes != text) std::abort();
  StreamDecoder decoder(tokenizer, false);
  std::string shown;
  for (const int32_t id : ids) shown += decoder.push(id);
  shown += decoder.finish();
  if (tokenizer.spm() && shown.starts_with(' ')) shown.erase(0, 1);
  if (shown != replace_invalid_utf8(bytes)) std::abort();
  StreamEncoder encoder(tokenizer, policy, 1);
  std::vector<int32_t> streamed;
  for (size_t i = 0; i < text.size(); i += part) encoder.push(text.substr(i, part), streamed);
  encoder.finish(streamed);
  if (streamed != ids) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer bpe = make_bpe(), spm = make_spm();
  if (size == 0) return 0;  // the first byte says how streams are cut
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
    check(bpe, policy, text, size_t{1} + data[0] % 16);
    check(spm, policy, text, size_t{1} + data[0] % 16);
  }
  return 0;
}
