#include "apps/replies.h"

#include "loam/base/json.h"

namespace loam {

Json describe_reply(const TextResult& result, const std::string& prompt) {
  Json record, ids = Json::array(), logp = Json::array();
  for (int32_t id : result.ids) ids.push_back(int64_t{id});
  for (float l : result.logp) logp.push_back(double{l});
  record["prompt"] = prompt;
  record["text"] = result.text;
  record["ids"] = std::move(ids);
  record["logprobs"] = std::move(logp);
  record["finish_reason"] = finish_reason_name(result.reason);
  record["prompt_tokens"] = static_cast<int64_t>(result.prompt_ids.size());
  return record;
}

Json describe_timing(const GenerateStats& stats) {
  Json t;
  t["prompt_tokens"] = stats.prompt_tokens;
  t["new_tokens"] = stats.new_tokens;
  t["prefill_seconds"] = stats.prefill_seconds;
  t["decode_seconds"] = stats.decode_seconds;
  return t;
}

std::vector<TextRequest> make_requests(const std::vector<std::string>& prompts, const TextRequest& settings,
                                       int64_t num) {
  std::vector<TextRequest> requests;
  for (const std::string& prompt : prompts) {
    for (int64_t i = 0; i < num; ++i) {
      requests.push_back(settings);
      requests.back().prompt = prompt;
      requests.back().stream = requests.size() - 1;
    }
  }
  return requests;
}

std::vector<std::string> read_prompts(const Path& input, const std::string& key) {
  std::vector<std::string> prompts;
  LineReader lines(open_input(input));
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", lines.name(), lines.line_number());
    const Json record = Json::parse(line, where);
    const Json* prompt = record.is_object() ? record.find(key) : nullptr;
    if (!prompt || !prompt->is_string()) fail(ErrorCode::kBadFormat, "{}: no text under the key '{}'", where, key);
    prompts.push_back(prompt->as_string());
  }
  return prompts;
}

}  // namespace loam
