// Any bytes as text: encoding and decoding lose nothing, and a stream cut anywhere gives the same ids.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "loam/base/log.h"
#include "loam/base/utf8.h"
#include "loam/text/stream_decode.h"
#include "loam/text/tokenizer.h"

namespace {

loam::Tokenizer make_tokenizer() {
  loam::set_log_level(loam::LogLevel::kOff);
  loam::BpeTrainOptions options;
  options.vocab_size = 300;
  options.min_frequency = 1;
  loam::BpeTrainer trainer(options);
  trainer.add_document("the cat ate the hat, aaaa aa's  \n\n  \xe4\xbd\xa0\xe4\xbd\xa0 12 12");
  return loam::Tokenizer(loam::make_bpe_model(trainer.train(), {"<|end|>", "<|", "<|end|>x"}, options.pretokenizer));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const Tokenizer tokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const SpecialPolicy& policy : {SpecialPolicy::none(), SpecialPolicy::all()}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, policy);
    if (tokenizer.decode(ids) != text) std::abort();
    StreamDecoder decoder(tokenizer, false);
    std::string shown;
    for (const int32_t id : ids) shown += decoder.push(id);
    if (shown + decoder.finish() != replace_invalid_utf8(text)) std::abort();
    StreamEncoder encoder(tokenizer, policy, 1);
    std::vector<int32_t> streamed;
    for (size_t i = 0; i < size; i += 3) encoder.push(text.substr(i, 3), streamed);
    encoder.finish(streamed);
    if (streamed != ids) std::abort();
  }
  return 0;
}
