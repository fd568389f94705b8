#include "loam/session/text_session.h"

#include <cmath>

#include "loam/session/stop_filter.h"
#include "loam/text/stream_decode.h"

namespace loam {

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids;
  if (tokenizer.bos_id() >= 0) {
    ids.push_back(tokenizer.bos_id());
  } else if (prompt.empty()) {
    LOAM_CHECK(tokenizer.end_of_text_id() >= 0, "an empty prompt needs a tokenizer with a begin or end-of-text token");
    ids.push_back(tokenizer.end_of_text_id());
  }
  tokenizer.encode(prompt, SpecialPolicy::none(), ids);
  return ids;
}

namespace {

// A model's vocabulary may be longer than the tokenizer's, and the tokenizer's may have gaps.
std::vector<bool> ids_with_token(const Tokenizer& tokenizer) {
  std::vector<bool> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) ids.push_back(tokenizer.has_token(id));
  return ids;
}

}  // namespace

std::vector<TextResult> generate_text(const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer,
                                      const std::vector<TextRequest>& requests, const GenerateOptions& options,
                                      const std::function<void(size_t, const std::string&)>& on_text,
                                      GenerateStats* stats) {
  struct TextStream {
    StreamDecoder decoder;
    StopFilter filter;
  };
  const std::vector<bool> drawable = ids_with_token(tokenizer);
  std::vector<TextStream> streams;
  std::vector<GenerateRequest> engine_requests;
  std::vector<TextResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const TextRequest& request = requests[i];
    results[i].prompt_ids = prompt_ids(tokenizer, request.prompt);
    streams.push_back({StreamDecoder(tokenizer), StopFilter(request.stops)});
    GenerateRequest engine{.prompt = results[i].prompt_ids,
                           .max_tokens = request.max_tokens,
                           .sampling = request.sampling,
                           .stream = request.stream,
                           .drawable = drawable,
                           .stop_ids = {}};
    engine.stop_ids = model.eos_ids;
    if (const int32_t end = tokenizer.end_of_text_id(); end >= 0) engine.stop_ids.push_back(end);
    engine_requests.push_back(std::move(engine));
  }
  const auto emit = [&](size_t i, const std::string& text) {
    if (text.empty()) return;
    results[i].text += text;
    if (on_text) on_text(i, text);
  };
  const auto on_token = [&](size_t i, int32_t token, float) {
    emit(i, streams[i].filter.push(streams[i].decoder.push(token)));
    return !streams[i].filter.stopped();
  };
  std::vector<GenerateResult> generated = generate(ctx, model, engine_requests, options, on_token, stats);
  for (size_t i = 0; i < requests.size(); ++i) {
    emit(i, streams[i].filter.push(streams[i].decoder.finish()));
    emit(i, streams[i].filter.finish());
    results[i].ids = std::move(generated[i].tokens);
    results[i].logp = std::move(generated[i].logp);
    results[i].reason = streams[i].filter.stopped() ? FinishReason::stop : generated[i].reason;
  }
  return results;
}

double TextScore::perplexity() const { return std::exp(-total_logp / static_cast<double>(scored)); }
double TextScore::bits_per_byte() const { return -total_logp / std::log(2.0) / static_cast<double>(bytes); }

TextScore score_text(const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer, const std::string& text,
                     int64_t window, int64_t stride, const std::function<void(int64_t)>& on_tokens) {
  TextScore score;
  score.ids = text.empty() ? std::vector<int32_t>{} : prompt_ids(tokenizer, text);
  if (!score.ids.empty()) {
    score.bytes = static_cast<int64_t>(text.size());
    const auto first = std::span<const int32_t>(score.ids).first(1);
    if (first[0] != tokenizer.bos_id()) score.bytes -= static_cast<int64_t>(tokenizer.decode(first).size());
  }
  score.logp = score_tokens(ctx, model, score.ids, window, stride, on_tokens);
  score.scored = score.ids.empty() ? 0 : static_cast<int64_t>(score.ids.size()) - 1;
  for (float logp : score.logp) score.total_logp += logp;
  return score;
}

}  // namespace loam
