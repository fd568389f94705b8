// Prompts from files, and replies as JSON.
#pragma once

#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/session/text_session.h"

namespace loam {

struct Prompt {
  std::string text;
  std::string id;     // of the input, as JSON text; empty if it has none
  std::string where;  // "--prompt", or "file:line"
};

// The prompts of a JSONL file: the member `key` of each line. Error{kBadFormat} with file and line for one without, or
// if there is none at all.
std::vector<Prompt> read_prompts(const Path& input, const std::string& key);
// `num` requests a prompt, each with its own stream of random numbers. Error that names the prompt if it does not fit
// into the model's context; a warning if the longest replies do not.
std::vector<TextRequest> make_requests(const std::vector<Prompt>& prompts, const TextRequest& settings, int64_t num,
                                       const Tokenizer& tokenizer, const ModelConfig& config);

// A reply to `prompt`, number `sample` of those to it; as a line, with the prompt's id in front.
std::string reply_line(const TextResult& result, const Prompt& prompt, int64_t sample);
Json describe_reply(const TextResult& result, const Prompt& prompt, int64_t sample);
Json describe_timing(const GenerateStats& stats);

}  // namespace loam
