#include "loam/model/config_file.h"

#include <optional>

#include "loam/base/log.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// An id or a list of ids; nullopt if nothing is stated.
std::optional<std::vector<int32_t>> ids_of(const Json& json, const char* key, int64_t vocab_size,
                                           const std::string& file) {
  const Json* value = json.find(key);
  if (!value || value->is_null()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Json& id : value->is_array() ? value->as_array() : Json::Array{*value}) {
    if (!id.is_int()) fail(ErrorCode::kBadFormat, "\"{}\": expected an id or a list of ids", key);
    if (id.as_int() >= 0 && id.as_int() < vocab_size) {
      ids.push_back(static_cast<int32_t>(id.as_int()));
    } else {
      log_warn("{}: \"{}\": {} is ignored: the vocabulary has {} ids", file, key, id.as_int(), vocab_size);
    }
  }
  return ids;
}

void take_ids(ModelFileConfig& read, const Json& json, const std::string& file) {
  const int64_t vocab_size = read.config.vocab_size;
  if (const auto bos = ids_of(json, "bos_token_id", vocab_size, file); bos && !bos->empty()) read.bos_id = bos->front();
  if (const auto eos = ids_of(json, "eos_token_id", vocab_size, file)) read.eos_ids = *eos;
}

// A model with a head for each of several labels, of which one is a number a text: a reward model.
bool is_classifier(const Json& json) {
  const Json* names = json.find("architectures");
  const bool listed = names && names->is_array() && !names->as_array().empty() && names->as_array()[0].is_string();
  if (!listed || !names->as_array()[0].as_string().ends_with("ForSequenceClassification")) return false;
  const Json *labels = json.find("id2label"), *count = json.find("num_labels");
  const bool one =
      (labels && labels->is_object() && labels->as_object().size() == 1) || (count && *count == Json(int64_t{1}));
  if (!one) fail(ErrorCode::kBadFormat, "\"architectures\": a classifier of several labels is not supported");
  return true;
}

// Parses a file and works on it; every error names the file.
template <class Work>
void with_json(const Path& file, const Work& work) {
  const Json json = Json::parse(read_file(file, kMaxConfigBytes), file.string());
  try {
    if (!json.is_object()) fail(ErrorCode::kBadFormat, "it is not an object");
    work(json);
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: {}", file.string(), error.what());
  }
}

}  // namespace

ModelFileConfig read_model_config(const Path& directory) {
  const Path file = directory / "config.json", generation = directory / "generation_config.json";
  ModelFileConfig read{};
  with_json(file, [&](const Json& json) {
    const Json* type = json.find("model_type");
    if (!type) fail(ErrorCode::kBadFormat, "\"model_type\" is missing");
    if (!type->is_string()) {
      fail(ErrorCode::kBadFormat, "\"model_type\": expected a text, found {}", printable(type->dump(), false, 60));
    }
    read.family = &family_named(type->as_string());
    read.config = read.family->read(json);
    if (is_classifier(json)) {
      read.config.head = HeadKind::scalar;
      read.config.logit_scale = 1;
      read.config.logit_softcap = 0;
    }
    read.config = derive(read.config);
    LOAM_CHECK(read.config.vocab_size > 0, "\"vocab_size\" is 0");
    const RopeScaling& scaling = read.config.rope_scaling;
    if (scaling.kind == RopeScalingKind::longrope && read.config.context_length > scaling.original_context) {
      log_warn(
          "{}: texts of at most {} tokens get the long factors of longrope, too; transformers gives them the short "
          "ones",
          file.string(), scaling.original_context);
    }
    take_ids(read, json, file.string());
  });
  std::error_code error;
  if (std::filesystem::exists(generation, error)) {
    with_json(generation, [&](const Json& json) { take_ids(read, json, generation.string()); });
  }
  return read;
}

}  // namespace loam
