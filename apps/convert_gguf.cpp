// `loam convert --to FILE.gguf`
#include <algorithm>
#include <cctype>

#include "apps/convert.h"
#include "apps/open_model.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/format/safetensors.h"
#include "loam/model/gguf_model.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

bool is_file(const Path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// The directory of a model, for its path or "hf:org/name".
Path model_directory(const std::string& from) {
  const Path path = resolve_model(from);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(ErrorCode::kNotFound, "model {}: there is no such directory", from);
  if (std::filesystem::is_directory(path, error)) {
    const std::string kind = kind_of_directory(path);
    if (kind.empty() || kind == "model directory") return path;
  }
  fail(ErrorCode::kInvalidArgument,
       "{}: GGUF is written of a model directory; a run has one in model/, and "
       "loam convert makes one of a .bin file",
       from);
}

// general.name. By that, llama.cpp knows Phi-3's control tokens, and opens no file so called that lacks them.
std::string name_of(const std::string& from, const std::vector<GgufField>& tokenizer) {
  const Path path = Path(from).lexically_normal();
  const std::string name = (path.filename().empty() ? path.parent_path() : path).filename().string();
  std::string lower = name;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.find("phi3") == lower.npos && lower.find("phi-3") == lower.npos) return name;
  for (const GgufField& field : tokenizer) {
    const auto* tokens = std::get_if<std::vector<std::string>>(&field.value);
    if (!tokens || field.key != "tokenizer.ggml.tokens") continue;
    for (const char* token : {"<s>", "</s>", "<unk>", "<|endoftext|>"}) {
      if (std::find(tokens->begin(), tokens->end(), token) == tokens->end()) return "";
    }
  }
  return name;
}

// The chat template beside a model, and those with names of their own.
std::vector<GgufField> chat_templates(const Path& directory) {
  if (is_file(directory / "chat_template.jinja"))
    return {{kTemplateKey, read_file(directory / "chat_template.jinja", int64_t{1} << 26)}};
  const Path config = directory / "tokenizer_config.json";
  if (!is_file(config)) return {};
  const Json json = Json::parse(read_file(config, int64_t{1} << 26), config.string());
  const Json* stated = json.is_object() ? json.find("chat_template") : nullptr;
  if (!stated || stated->is_null()) return {};
  if (stated->is_string()) return {{kTemplateKey, stated->as_string()}};
  std::vector<GgufField> fields;
  std::vector<std::string> names;
  for (const Json& entry : stated->as_array()) {
    const std::string &name = entry.at("name").as_string(), &text = entry.at("template").as_string();
    if (name != "default") names.push_back(name);
    fields.push_back({name == "default" ? kTemplateKey : fmt::format("{}.{}", kTemplateKey, name), text});
  }
  if (!names.empty()) fields.push_back({"tokenizer.chat_templates", std::move(names)});
  return fields;
}

bool has_tokenizer(const Path& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json"}) {
    if (is_file(directory / name)) return true;
  }
  return false;
}

std::vector<GgufField> tokenizer_fields(const ConvertOptions& o, const Path& directory, const ModelFileConfig& model) {
  if (o.tokenizer.empty() && !has_tokenizer(directory)) {
    log_warn("{} has no tokenizer beside it, and {} gets none: it knows ids only; --tokenizer would put one there",
             o.from, o.to);
    return {};
  }
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, o.from, model.config.vocab_size);
  check_tokenizer(tokenizer, o.tokenizer, model.config.vocab_size, SafetensorsModel(directory).metadata(kTokenizerKey),
                  o.from);
  std::vector<GgufField> fields = gguf_tokenizer(tokenizer, model.config.vocab_size, model.bos_id, model.eos_ids);
  for (GgufField& field : chat_templates(directory)) fields.push_back(std::move(field));
  return fields;
}

}  // namespace

Json convert_to_gguf(const ConvertOptions& o, int threads) {
  if (!o.family.empty()) throw UsageError("--family: GGUF is written of the family that the model is read as");
  std::error_code error;
  if (std::filesystem::exists(o.to, error) && !o.force)
    fail(ErrorCode::kAlreadyExists, "{}: already exists (--force replaces it)", o.to);
  const Path directory = model_directory(o.from);
  const GgufModel model(directory);
  GgufModelOptions options;
  options.dtype = parse_dtype(o.dtype);
  options.tokenizer = tokenizer_fields(o, directory, model.config());
  options.name = name_of(o.from, options.tokenizer);
  const int64_t bytes = model.bytes(options.dtype);
  Progress progress("writing", bytes, "bytes");
  options.on_bytes = [&](int64_t more) {
    check_interrupt();
    progress.advance(more);
  };
  NonFiniteWarnings warnings;
  options.on_tensor = [&](const std::string& name, const Tensor& t) { warnings.look_at(name, t, threads); };
  const ExecResources exec = make_exec_resources(Device{}, threads);
  model.write(exec.context, o.to, options);
  progress.finish();
  warnings.finish();
  Json report;
  report["out"] = o.to;
  report["family"] = model.config().family->name;
  report["dtype"] = o.dtype;
  report["parameters"] = parameter_count(model.config().config);
  return report;
}

}  // namespace loam
