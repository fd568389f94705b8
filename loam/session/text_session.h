// The one join of text and engine: prompts as text in, text out as it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loam/infer/generate.h"
#include "loam/infer/score.h"
#include "loam/text/tokenizer.h"

namespace loam {

struct TextRequest {
  std::string prompt;  // "" starts a new document: needs a tokenizer with a begin or end-of-text token
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  uint64_t stream = 0;
  std::vector<std::string> stops;
};

struct TextResult {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;  // all that were generated, a final stop string's tokens included
  std::vector<float> logp;
  std::string text;  // ends before the stop string
  FinishReason reason = FinishReason::length;
};

// Ids of a prompt: the tokenizer's begin token if it has one, then the text as ordinary text.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt);

// Only ids that have a token are drawn. `on_text` gets each request's text as it becomes certain; joined, the parts
// equal TextResult::text.
std::vector<TextResult> generate_text(const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer,
                                      const std::vector<TextRequest>& requests, const GenerateOptions& options,
                                      const std::function<void(size_t request, const std::string& text)>& on_text = {},
                                      GenerateStats* stats = nullptr);

// The begin token of the tokenizer stands before the text, so that all of it is scored. Without one nothing stands
// before the first token: it has no log-probability, and its bytes do not count either. `on_tokens` hears of progress.
struct TextScore {
  std::vector<int32_t> ids;
  std::vector<float> logp;  // [ids]: 0 for the first
  int64_t scored = 0;       // tokens with a log-probability
  int64_t bytes = 0;        // of the tokens that are scored
  double total_logp = 0;
  double perplexity() const;     // exp(-total / scored)
  double bits_per_byte() const;  // -total / ln 2 / bytes
};
TextScore score_text(const ExecContext& ctx, const Model& model, const Tokenizer& tokenizer, const std::string& text,
                     int64_t window = 0, int64_t stride = 0, const std::function<void(int64_t)>& on_tokens = {});

}  // namespace loam
