#include "loam/train/model_tokenizer.h"

#include "loam/base/json.h"
#include "loam/base/log.h"

namespace loam {
namespace {

// The text of an added token, or null.
Json text_of(const Json& tokenizer, int32_t id) {
  const Json* added = tokenizer.find("added_tokens");
  if (!added || !added->is_array()) return {};
  for (const Json& token : added->as_array()) {
    if (token.at("id").as_int() == id) return token.at("content");
  }
  return {};
}

// The id that a post-processor, or the last one of several that does so, puts in front of every text; -1 for none.
int32_t begin_of(const Json& post) {
  if (!post.is_object()) return -1;
  int32_t begin = -1;
  if (const Json* steps = post.find("processors")) {
    for (const Json& step : steps->as_array()) {
      if (const int32_t id = begin_of(step); id >= 0) begin = id;
    }
  }
  const Json* single = post.find("single");
  const Json* first = single && single->is_array() && !single->as_array().empty() ? &single->as_array()[0] : nullptr;
  const Json* special = first ? first->find("SpecialToken") : nullptr;
  if (!special || !special->is_object()) return begin;
  return static_cast<int32_t>(
      post.at("special_tokens").at(special->at("id").as_string()).at("ids").as_array().at(0).as_int());
}

Json config_of(const Json& tokenizer, int32_t begin_id, int32_t end_id, int64_t context_length) {
  Json config = Json::object();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["bos_token"] = text_of(tokenizer, begin_id);
  config["eos_token"] = text_of(tokenizer, end_id);
  const Json* unknown = tokenizer.at("model").find("unk_token");
  config["unk_token"] = unknown ? *unknown : Json();
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = context_length;
  return config;
}

}  // namespace

int32_t write_model_tokenizer(const Path& data, const Path& directory, const Model& model) {
  const Path source = data / "tokenizer.json";
  if (!std::filesystem::exists(source)) {
    log_warn("{} has no tokenizer.json: the model directory is without one", data.string());
    return model.bos_id;
  }
  const std::string text = read_file(source);
  write_file_atomic(directory / "tokenizer.json", text);
  try {
    const Json tokenizer = Json::parse(text, source.string());
    const Json* post = tokenizer.find("post_processor");
    const int32_t begin = post ? begin_of(*post) : -1, begin_id = begin >= 0 ? begin : model.bos_id;
    const int32_t end_id = model.eos_ids.empty() ? -1 : model.eos_ids[0];
    const Json config = config_of(tokenizer, begin_id, end_id, model.config().context_length);
    write_file_atomic(directory / "tokenizer_config.json", config.dump(2) + "\n");
    return begin_id;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) throw;
    log_warn("the model directory is without tokenizer_config.json: {}: {}", source.string(), error.what());
    return model.bos_id;
  }
}

}  // namespace loam
