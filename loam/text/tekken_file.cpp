// Mistral's tekken.json: a pattern, and tokens by rank in base64, as tiktoken has them; control tokens come first.
#include <algorithm>

#include "loam/base/base64.h"
#include "loam/base/error.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/rank_merges.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

// Where the file does not list them. The rest are numbered.
constexpr const char* kSpecials[] = {"<unk>",
                                     "<s>",
                                     "</s>",
                                     "[INST]",
                                     "[/INST]",
                                     "[AVAILABLE_TOOLS]",
                                     "[/AVAILABLE_TOOLS]",
                                     "[TOOL_RESULTS]",
                                     "[/TOOL_RESULTS]",
                                     "[TOOL_CALLS]",
                                     "[IMG]",
                                     "<pad>",
                                     "[IMG_BREAK]",
                                     "[IMG_END]",
                                     "[PREFIX]",
                                     "[MIDDLE]",
                                     "[SUFFIX]",
                                     "[SYSTEM_PROMPT]",
                                     "[/SYSTEM_PROMPT]",
                                     "[TOOL_CONTENT]"};

int64_t rank_of(const Json& entry, int64_t count, const char* what) {
  const int64_t rank = entry.at("rank").as_int();
  if (rank < 0 || rank >= count) fail(ErrorCode::kBadFormat, "{} has the rank {} of {}", what, rank, count);
  return rank;
}

std::vector<SpecialToken> read_specials(const Json& file, int64_t count) {
  std::vector<std::string> texts(static_cast<size_t>(count));
  if (const Json* list = file.find("special_tokens"); list && !list->is_null()) {
    for (const Json& entry : list->as_array())
      texts[static_cast<size_t>(rank_of(entry, count, "a special token"))] = entry.at("token_str").as_string();
  } else {
    std::copy_n(kSpecials, std::min(texts.size(), std::size(kSpecials)), texts.begin());
  }
  std::vector<SpecialToken> specials;
  for (size_t id = 0; id < texts.size(); ++id)
    specials.push_back({texts[id].empty() ? fmt::format("<SPECIAL_{}>", id) : texts[id], static_cast<int32_t>(id)});
  return specials;
}

BpeModel read_model(const Json& file) {
  const Json& config = file.at("config");
  const int64_t size = config.at("default_vocab_size").as_int(),
                special = config.at("default_num_special_tokens").as_int();
  const Json::Array& vocab = file.at("vocab").as_array();
  if (special < 0 || special > 65536 || size < special || size - special > static_cast<int64_t>(vocab.size()))
    fail(ErrorCode::kBadFormat, "{} tokens, {} of them special, of {}", size, special, vocab.size());
  BpeModel model;
  model.specials = read_specials(file, special);
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (const Json& entry : vocab) {
    const int64_t rank = rank_of(entry, static_cast<int64_t>(vocab.size()), "a token");
    if (rank >= size - special) continue;  // the file may hold more than are in use
    std::string& token = tokens[static_cast<size_t>(special + rank)];
    if (!token.empty()) fail(ErrorCode::kBadFormat, "two tokens have the rank {}", rank);
    token = base64_decode(entry.at("token_bytes").as_string());
    if (token.empty() || token.size() > kMaxRankedBytes)
      fail(ErrorCode::kBadFormat, "the token of rank {} has {} bytes", rank, token.size());
  }
  derive_merges(tokens, model);
  for (const SpecialToken& token : model.specials) tokens[static_cast<size_t>(token.id)] = token.text;
  model.tokens = std::move(tokens);
  model.pretokenizer = Pretokenizer({{config.at("pattern").as_string()}});
  model.ignore_merges = true;
  const auto bos =
      std::find_if(model.specials.begin(), model.specials.end(), [](const auto& t) { return t.text == "<s>"; });
  if (bos != model.specials.end()) model.frame = begins_with(bos->id);
  return model;
}

}  // namespace

Tokenizer load_tekken(const Path& path) {
  const std::string source = path.string();
  const Json file = Json::parse(read_file(path, kMaxTokenizerBytes), source);
  BpeModel model;
  try {
    model = read_model(file);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", source, error.what());
  }
  return make_tokenizer(std::move(model), source);
}

}  // namespace loam
