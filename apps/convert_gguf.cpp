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

// A name as llama.cpp's own writer puts it into a key: "_" for each character but ASCII's letters and digits.
std::string key_part(const std::string& name) {
  std::string part;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues) part += plain ? c : '_';
  }
  return part;
}

// Names and texts of the list "chat_template" in `config`.
std::vector<std::pair<std::string, std::string>> listed_templates(const Json& list, const Path& config) {
  const auto refuse = [&] {
    fail(ErrorCode::kBadFormat, "{}: \"chat_template\" is no text and no list of \"name\" and \"template\"",
         config.string());
  };
  std::vector<std::pair<std::string, std::string>> templates;
  if (!list.is_array()) refuse();
  for (const Json& entry : list.as_array()) {
    const Json* name = entry.is_object() ? entry.find("name") : nullptr;
    const Json* text = entry.is_object() ? entry.find("template") : nullptr;
    if (!name || !name->is_string() || name->as_string().empty() || !text || !text->is_string()) refuse();
    templates.emplace_back(name->as_string(), text->as_string());
  }
  return templates;
}

// The chat template beside a tokenizer, and those with names of their own.
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
  for (const auto& [stated_name, text] : listed_templates(*stated, config)) {
    const std::string name = key_part(stated_name);
    const std::string key = name == "default" ? kTemplateKey : fmt::format("{}.{}", kTemplateKey, name);
    if (std::any_of(fields.begin(), fields.end(), [&](const GgufField& f) { return f.key == key; })) {
      fail(ErrorCode::kBadFormat, "{}: \"chat_template\": two have the name {}", config.string(), name);
    }
    if (name != "default") names.push_back(name);
    fields.push_back({key, text});
  }
  if (!names.empty()) fields.push_back({"tokenizer.chat_templates", std::move(names)});
  return fields;
}

std::vector<GgufField> tokenizer_fields(const ConvertOptions& o, const Path& directory, const ModelFileConfig& model) {
  if (o.tokenizer.empty() && tokenizer_in(directory).empty()) {
    log_warn("{} has no tokenizer beside it, and {} gets none: it knows ids only; --tokenizer would put one there",
             o.from, o.to);
    return {};
  }
  const Tokenizer tokenizer = open_tokenizer(o.tokenizer, o.from, model.config.vocab_size);
  check_tokenizer(tokenizer, o.tokenizer, model.config.vocab_size, SafetensorsModel(directory).metadata(kTokenizerKey),
                  o.from);
  const Path path = o.tokenizer.empty() ? directory : Path(o.tokenizer);
  std::vector<GgufField> fields;
  try {
    fields = gguf_tokenizer(tokenizer, model.config.vocab_size, model.bos_id, model.eos_ids);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path.string(), error.what());
  }
  const Path beside = std::filesystem::is_directory(path) ? path : path.parent_path();
  for (GgufField& field : chat_templates(beside)) fields.push_back(std::move(field));
  return fields;
}

}  // namespace

Json convert_to_gguf(const ConvertOptions& o, int threads) {
  if (!o.family.empty()) throw UsageError("--family: GGUF is written of the family that the model is read as");
  if (o.shard_bytes != SaveModelOptions().shard_bytes) throw UsageError("--shard-size: GGUF is written as one file");
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
