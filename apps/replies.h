// Prompts from files, and replies as JSON.
#pragma once

#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/session/text_session.h"

namespace loam {

// The prompts of a JSONL file: the member `key` of each line.
std::vector<std::string> read_prompts(const Path& input, const std::string& key);
// `num` requests a prompt, each with its own stream of random numbers.
std::vector<TextRequest> make_requests(const std::vector<std::string>& prompts, const TextRequest& settings,
                                       int64_t num);

Json describe_reply(const TextResult& result, const std::string& prompt);
Json describe_timing(const GenerateStats& stats);

}  // namespace loam
