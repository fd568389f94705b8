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

// The id that a template puts in front of every text, or -1.
int32_t begin_of(const Json& tokenizer) {
  const Json* post = tokenizer.find("post_processor");
  const Json* single = post && post->is_object() ? post->find("single") : nullptr;
  if (!single || single->as_array().empty()) return -1;
  const Json* special = single->as_array()[0].find("SpecialToken");
  if (!special) return -1;
  return static_cast<int32_t>(
      post->at("special_tokens").at(special->at("id").as_string()).at("ids").as_array().at(0).as_int());
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
    const int32_t begin = begin_of(tokenizer), begin_id = begin >= 0 ? begin : model.bos_id;
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
