#include "loam/infer/generate.h"

#include <algorithm>
#include <optional>

#include "loam/base/clock.h"
#include "loam/base/interrupt.h"

namespace loam {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "";
}

namespace {

void check_request(const GenerateRequest& request, const ModelConfig& config) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  LOAM_CHECK(prompt > 0, "generate: the prompt has no tokens");
  LOAM_CHECK(request.max_tokens > 0, "generate: max_tokens must be at least 1, got {}", request.max_tokens);
  LOAM_CHECK(prompt < config.context_length,
             "generate: the prompt has {} tokens, which leaves no room in the model's context of {}", prompt,
             config.context_length);
  for (int32_t id : request.prompt) {
    LOAM_CHECK(id >= 0 && id < config.vocab_size, "generate: token id {} lies outside the model's vocabulary of {}", id,
               config.vocab_size);
  }
  check_sampling_options(request.sampling);
}

// Requests in flight, one a cache row, rows [0, active) in use.
class Batch {
 public:
  Batch(const ExecContext& ctx, const Model& model, const std::vector<GenerateRequest>& requests,
        const GenerateOptions& options, const TokenCallback& on_token, GenerateStats& stats)
      : ctx_(ctx),
        model_(model),
        requests_(requests),
        options_(options),
        on_token_(on_token),
        stats_(stats),
        results_(requests.size()) {
    int64_t capacity = 0;
    for (const GenerateRequest& r : requests)
      // At most the context, taken first so that the sum cannot overflow.
      capacity = std::max(
          capacity, static_cast<int64_t>(r.prompt.size()) + std::min(r.max_tokens, model.config().context_length));
    capacity = std::min(capacity, model.config().context_length);
    const int64_t rows = std::min(options.batch, static_cast<int64_t>(requests.size()));
    const DType dtype = model.transformer->head().weight.value().dtype();
    if (options.use_cache) cache_.emplace(ctx_, *model.transformer, dtype, rows, capacity);
    rows_ = rows;
  }

  std::vector<GenerateResult> run() {
    size_t next = 0;
    while (next < requests_.size() || !active_.empty()) {
      if (interrupted()) {
        for (size_t request : active_) results_[request].reason = FinishReason::cancelled;
        for (; next < requests_.size(); ++next) results_[next].reason = FinishReason::cancelled;
        break;
      }
      if (next < requests_.size() && static_cast<int64_t>(active_.size()) < rows_) {
        start(next++);
      } else {
        decode();
      }
    }
    return std::move(results_);
  }

 private:
  std::vector<int32_t> sequence(size_t request) const {
    std::vector<int32_t> ids = requests_[request].prompt;
    ids.insert(ids.end(), results_[request].tokens.begin(), results_[request].tokens.end());
    return ids;
  }

  // Logits [count, V] of the last position of each row.
  Tensor forward(std::span<const int32_t> ids, int64_t first, int64_t count) {
    const int64_t length = static_cast<int64_t>(ids.size()) / count;
    const Tensor input = Tensor::from<int32_t>(*ctx_.arena, {count, length}, ids);
    Tensor hidden;
    if (cache_) {
      cache_->begin(ctx_, first, count, length);
      hidden = model_.transformer->hidden(ctx_, input, *cache_).value;
      cache_->end();
    } else {
      std::vector<int32_t> positions(static_cast<size_t>(length));
      for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
      FullSequence sequence(Tensor::from<int32_t>(*ctx_.arena, {1, length}, positions), {});
      hidden = model_.transformer->hidden(ctx_, input, sequence).value;
    }
    const int64_t width = hidden.dim(-1);
    return model_.transformer
        ->logits(ctx_, hidden.narrow(1, length - 1, 1).as_strided({count, width}, {length * width, 1}, 0))
        .to_host();
  }

  void start(size_t request) {
    Stopwatch watch;
    const int64_t row = static_cast<int64_t>(active_.size());
    if (cache_) cache_->clear(row);
    active_.push_back(request);
    samplers_.emplace_back(requests_[request].sampling);
    const Tensor logits = forward(requests_[request].prompt, row, 1);
    stats_.prompt_tokens += static_cast<int64_t>(requests_[request].prompt.size());
    stats_.prefill_seconds += watch.seconds();
    take(row, logits.span<float>());
  }

  void decode() {
    Stopwatch watch;
    const int64_t count = static_cast<int64_t>(active_.size());
    if (cache_) {
      std::vector<int32_t> last;
      for (size_t request : active_) last.push_back(results_[request].tokens.back());
      const Tensor logits = forward(last, 0, count);
      const int64_t V = logits.dim(1);
      // From the last row down, so that a row that ends is replaced by one already seen.
      for (int64_t row = count - 1; row >= 0; --row)
        take(row, logits.span<float>().subspan(static_cast<size_t>(row * V), static_cast<size_t>(V)));
    } else {
      for (int64_t row = count - 1; row >= 0; --row) {
        const Tensor logits = forward(sequence(active_[static_cast<size_t>(row)]), row, 1);
        take(row, logits.span<float>());
      }
    }
    stats_.decode_seconds += watch.seconds();
  }

  // Samples the next token of a row and ends the row if that was its last.
  void take(int64_t row, std::span<const float> logits) {
    const size_t request = active_[static_cast<size_t>(row)];
    const GenerateRequest& r = requests_[request];
    GenerateResult& result = results_[request];
    const Sampled s = samplers_[static_cast<size_t>(row)].sample(logits, r.stream, result.tokens.size(), r.drawable);
    ++stats_.new_tokens;
    if (std::find(r.stop_ids.begin(), r.stop_ids.end(), s.token) != r.stop_ids.end())
      return end(row, FinishReason::stop);
    result.tokens.push_back(s.token);
    result.logp.push_back(s.logp);
    if (on_token_ && !on_token_(request, s.token, s.logp)) return end(row, FinishReason::stop);
    const int64_t made = static_cast<int64_t>(result.tokens.size());
    if (made >= r.max_tokens || static_cast<int64_t>(r.prompt.size()) + made >= model_.config().context_length)
      end(row, FinishReason::length);
  }

  void end(int64_t row, FinishReason reason) {
    results_[active_[static_cast<size_t>(row)]].reason = reason;
    const int64_t last = static_cast<int64_t>(active_.size()) - 1;
    if (row != last) {
      if (cache_) cache_->move(last, row);
      active_[static_cast<size_t>(row)] = active_.back();
      samplers_[static_cast<size_t>(row)] = std::move(samplers_.back());
    }
    active_.pop_back();
    samplers_.pop_back();
  }

  Context ctx_;
  const Model& model_;
  const std::vector<GenerateRequest>& requests_;
  const GenerateOptions& options_;
  const TokenCallback& on_token_;
  GenerateStats& stats_;
  std::vector<GenerateResult> results_;
  std::optional<KvCache> cache_;
  int64_t rows_ = 0;
  std::vector<size_t> active_;  // request of each row
  std::vector<Sampler> samplers_;
};

}  // namespace

std::vector<GenerateResult> generate(const ExecContext& ctx, const Model& model,
                                     const std::vector<GenerateRequest>& requests, const GenerateOptions& options,
                                     const TokenCallback& on_token, GenerateStats* stats) {
  LOAM_CHECK(options.batch > 0, "generate: batch must be at least 1, got {}", options.batch);
  for (const GenerateRequest& request : requests) check_request(request, model.config());
  GenerateStats ignored;
  if (requests.empty()) return {};
  return Batch(ctx, model, requests, options, on_token, stats ? *stats : ignored).run();
}

}  // namespace loam
