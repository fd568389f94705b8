#include "apps/replies.h"

#include <algorithm>

#include "loam/base/json.h"
#include "loam/base/log.h"

namespace loam {
namespace {

// The text of the member `key` of an object, in a line that Json::parse() took: a number keeps all its digits there.
std::string_view member_text(std::string_view line, const Json& key) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::string_view found;
  for (size_t i = 0, depth = 0; i < line.size(); ++i) {
    if (line[i] == '{' || line[i] == '[') ++depth;
    if (line[i] == '}' || line[i] == ']') --depth;
    if (line[i] != '"') continue;
    const size_t begin = i++;
    while (line[i] != '"') i += line[i] == '\\' ? 2 : 1;
    const size_t colon = line.find_first_not_of(kSpace, i + 1);
    if (depth != 1 || line[colon] != ':' || Json::parse(line.substr(begin, i + 1 - begin)) != key) continue;
    found = line.substr(line.find_first_not_of(kSpace, colon + 1));
  }
  return found.substr(0, found.find_first_of(" \t\r\n,}"));
}

std::string id_text(const Json* id, std::string_view line) {
  if (!id || id->is_null()) return "";
  return id->is_number() ? std::string(member_text(line, "id")) : id->dump();
}

}  // namespace

Json describe_reply(const TextResult& result, const Prompt& prompt, int64_t sample) {
  Json record, ids = Json::array(), logp = Json::array();
  for (int32_t id : result.ids) ids.push_back(int64_t{id});
  for (float l : result.logp) logp.push_back(double{l});
  record["sample"] = sample;
  record["prompt"] = prompt.text;
  record["text"] = result.text;
  record["ids"] = std::move(ids);
  record["logprobs"] = std::move(logp);
  record["finish_reason"] = finish_reason_name(result.reason);
  record["prompt_tokens"] = static_cast<int64_t>(result.prompt_ids.size());
  return record;
}

std::string reply_line(const TextResult& result, const Prompt& prompt, int64_t sample) {
  std::string line = describe_reply(result, prompt, sample).dump() + "\n";
  if (!prompt.id.empty()) line.insert(1, fmt::format("\"id\":{},", prompt.id));
  return line;
}

Json describe_timing(const GenerateStats& stats) {
  Json t;
  t["prompt_tokens"] = stats.prompt_tokens;
  t["new_tokens"] = stats.new_tokens;
  t["prefill_seconds"] = stats.prefill_seconds;
  t["decode_seconds"] = stats.decode_seconds;
  return t;
}

std::vector<TextRequest> make_requests(const std::vector<Prompt>& prompts, const TextRequest& settings, int64_t num,
                                       const Tokenizer& tokenizer, const ModelConfig& config) {
  std::vector<TextRequest> requests;
  int64_t cut = 0, least_room = config.context_length;
  for (const Prompt& prompt : prompts) {
    int64_t tokens = 0;
    try {
      tokens = static_cast<int64_t>(prompt_ids(tokenizer, prompt.text).size());
    } catch (const Error& error) {
      fail(error.code(), "{}: {}", prompt.where, error.what());
    }
    LOAM_CHECK(tokens < config.context_length,
               "{}: the prompt has {} tokens, which leaves no room in the model's context of {}", prompt.where, tokens,
               config.context_length);
    const int64_t room = config.context_length - tokens;
    cut += room < settings.max_tokens;
    least_room = std::min(least_room, room);
    for (int64_t i = 0; i < num; ++i) {
      requests.push_back(settings);
      requests.back().prompt = prompt.text;
      requests.back().stream = requests.size() - 1;
    }
  }
  if (cut > 0) {
    log_warn("--max-tokens {}: the model's context of {} leaves room for {} after {}", settings.max_tokens,
             config.context_length, least_room,
             prompts.size() == 1 ? "the prompt" : fmt::format("the longest of the prompts ({} are cut short)", cut));
  }
  return requests;
}

std::vector<Prompt> read_prompts(const Path& input, const std::string& key) {
  std::vector<Prompt> prompts;
  LineReader lines(open_input(input));
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", lines.name(), lines.line_number());
    const Json record = Json::parse(line, where);
    const Json* prompt = record.is_object() ? record.find(key) : nullptr;
    if (!prompt || !prompt->is_string()) fail(ErrorCode::kBadFormat, "{}: no text under the key '{}'", where, key);
    prompts.push_back({prompt->as_string(), id_text(record.find("id"), line), where});
  }
  if (prompts.empty()) fail(ErrorCode::kBadFormat, "{}: there is no prompt in it", lines.name());
  return prompts;
}

}  // namespace loam
