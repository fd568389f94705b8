#include "apps/inspect.h"

#include "apps/open_model.h"
#include "loam/base/log.h"
#include "loam/config/train_config.h"
#include "loam/data/token_shard.h"
#include "loam/format/checkpoint.h"
#include "loam/format/llama2c.h"
#include "loam/format/safetensors.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

bool has(const Path& directory, const char* name) {
  std::error_code error;
  return std::filesystem::exists(directory / name, error);
}

Json read_json(const Path& path) { return Json::parse(read_file(path, int64_t{1} << 26), path.string()); }

// Sums over tensors, and the list of them. `info(name)` gives {dtype as the file spells it, shape, bytes}.
template <class Names, class Info>
void add_tensors(Json& facts, const Names& names, Info&& info) {
  Json list = Json::array();
  int64_t elements = 0, bytes = 0;
  for (const auto& name : names) {
    const SafetensorsEntry& entry = info(name);
    elements += entry.shape.product();
    bytes += entry.end - entry.begin;
    Json shape = Json::array();
    for (int64_t size : entry.shape) shape.push_back(size);
    list.push_back(Json::Object{{"name", name}, {"dtype", entry.dtype}, {"shape", std::move(shape)}});
  }
  facts["parameters"] = elements;
  facts["bytes"] = bytes;
  facts["tensors"] = std::move(list);
}

Json inspect_tokenizer(const Tokenizer& tokenizer) {
  Json facts = describe_tokenizer(tokenizer);
  facts["kind"] = "tokenizer: " + facts["kind"].as_string();
  return facts;
}

Json inspect_model(const Path& path) {
  Json facts;
  facts["kind"] = "model directory";
  facts["config"] = read_json(path / "config.json");
  if (!tokenizer_in(path).empty()) {
    try {
      facts["tokenizer"] = describe_tokenizer(load_tokenizer(path));
    } catch (const Error& error) {  // of a kind that loam does not read
      facts["tokenizer"] = error.what();
    }
  }
  const SafetensorsModel model(path);
  add_tensors(facts, model.names(), [&](const std::string& name) { return model.entry(name); });
  try {
    check_model(path);
  } catch (const Error& error) {
    facts["problem"] = error.what();
  }
  return facts;
}

Json inspect_checkpoint(const Path& path) {
  Json facts;
  facts["kind"] = "training checkpoint";
  const VerifiedCheckpoint verified(path);
  facts["state"] = read_checkpoint_state(verified.path);
  const SafetensorsFile model(path / "model.safetensors");
  add_tensors(facts, model.names(), [&](const std::string& name) { return model.entry(name); });
  return facts;
}

// Keeps the record of a line as the last one of its kind.
void add_metrics(const std::string& line, const std::string& where, Json& last) {
  try {
    const Json record = Json::parse(line, where);
    const Json* kind = record.is_object() ? record.find("kind") : nullptr;
    if (kind && kind->is_string() && kind->as_string() != "sample") last[kind->as_string()] = record;
  } catch (const Error& error) {
    log_warn("{}", error.what());
  }
}

// The directory of `loam train`: how far it is, and what its last lines of metrics say.
Json inspect_run(const Path& path) {
  Json facts, checkpoints = Json::array(), last = Json::object();
  facts["kind"] = "training run";
  facts["config"] = read_json(path / "config.json");
  for (const CheckpointInfo& checkpoint : CheckpointStore(path / "checkpoints").list())
    checkpoints.push_back(checkpoint.path.string());
  facts["checkpoints"] = std::move(checkpoints);
  if (has(path, "metrics.jsonl")) {
    const std::string text = read_file(path / "metrics.jsonl", int64_t{1} << 32);
    // What stands behind the last line end is being written, or a kill has cut it.
    for (size_t begin = 0, end, line = 1; (end = text.find('\n', begin)) != text.npos; begin = end + 1, ++line)
      add_metrics(text.substr(begin, end - begin), fmt::format("{}:{}", (path / "metrics.jsonl").string(), line), last);
  }
  facts["last_metrics"] = std::move(last);
  facts["model"] = has(path, "model") ? Json((path / "model").string()) : Json();
  return facts;
}

// Of a set whose every byte has been checked.
Json describe_tokens(const Path& path, Json facts = {}) {
  const TokenSet set(path);
  set.verify();
  const TokenSetInfo& info = set.info();
  facts["tokens"] = info.tokens;
  facts["documents"] = info.documents;
  facts["text_bytes"] = info.text_bytes;
  facts["vocab_size"] = info.vocab_size;
  facts["end_of_text"] = int64_t{info.end_of_text};
  facts["tokenizer"] = info.tokenizer_fingerprint;
  return facts;
}

Json inspect_data(const Path& path) {
  Json facts;
  facts["kind"] = "data directory";
  facts["train"] = describe_tokens(path / "train");
  if (has(path, "val")) facts["val"] = describe_tokens(path / "val");
  if (!has(path, "tokenizer.json")) return facts;
  const Json tokenizer = describe_tokenizer(load_tokenizer(path / "tokenizer.json"));
  for (const char* part : {"train", "val"}) {
    const Json* set = facts.find(part);
    if (set && set->at("tokenizer").as_string() != tokenizer.at("fingerprint").as_string())
      fail(ErrorCode::kBadFormat, "{}: not the tokenizer that made the tokens in {}",
           (path / "tokenizer.json").string(), part);
  }
  facts["tokenizer"] = tokenizer;
  return facts;
}

Json inspect_llama2c(const Path& path) {
  const Llama2cModel model = read_llama2c(path);
  Json facts;
  facts["kind"] = "llama2.c model";
  facts["dim"] = model.dim;
  facts["ffn_dim"] = model.ffn_dim;
  facts["layers"] = model.layers;
  facts["heads"] = model.heads;
  facts["kv_heads"] = model.kv_heads;
  facts["vocab_size"] = model.vocab_size;
  facts["context_length"] = model.context_length;
  facts["tied"] = model.tied;
  std::vector<std::string> names;
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, tensor] : model.tensors) {
    names.push_back(name);
    entries[name] = {"F32", tensor.shape(), 0, tensor.bytes()};
  }
  add_tensors(facts, names, [&](const std::string& name) { return entries.at(name); });
  return facts;
}

Json inspect_safetensors(const Path& path) {
  const SafetensorsFile file(path);
  Json facts, metadata = Json::object();
  facts["kind"] = "safetensors";
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  facts["metadata"] = std::move(metadata);
  add_tensors(facts, file.names(), [&](const std::string& name) { return file.entry(name); });
  return facts;
}

// llama2.c gives the same ending to models and tokenizers.
Json inspect_bin(const Path& path) {
  try {
    return inspect_llama2c(path);
  } catch (const Error& not_model) {
    try {
      return inspect_tokenizer(load_llama2c_tokenizer(path));
    } catch (const Error&) {
      fail(ErrorCode::kBadFormat, "{}; nor is it a llama2.c tokenizer", not_model.what());
    }
  }
}

}  // namespace

Json inspect(const std::string& name) {
  const Path path = resolve_model(name);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(ErrorCode::kNotFound, "{}: there is no such file or directory", name);
  if (std::filesystem::is_directory(path, error)) {
    const std::string kind = kind_of_directory(path);
    if (kind == "training checkpoint") return inspect_checkpoint(path);
    if (kind == "token set") return describe_tokens(path, Json::Object{{"kind", kind}});
    if (kind == "data directory") return inspect_data(path);
    if (kind == "model directory") return inspect_model(path);
    if (kind == "training run") return inspect_run(path);
    if (kind == "tokenizer") return inspect_tokenizer(load_tokenizer(path));
  } else {
    if (path.extension() == ".safetensors") return inspect_safetensors(path);
    if (path.extension() == ".bin") return inspect_bin(path);
    if (path.extension() == ".gguf") return inspect_gguf(path);
    if (path.extension() == ".json") return inspect_tokenizer(load_tokenizer(path));
  }
  fail(ErrorCode::kBadFormat,
       "{}: not a model, run, checkpoint, data directory, token set, tokenizer, .safetensors, .gguf or llama2.c .bin "
       "file",
       name);
}

}  // namespace loam
