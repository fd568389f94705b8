// `loam inspect`: what is in a file or directory that loam reads.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/command.h"
#include "apps/open_model.h"
#include "loam/base/progress.h"
#include "loam/data/token_shard.h"
#include "loam/format/checkpoint.h"
#include "loam/format/llama2c.h"
#include "loam/format/safetensors.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

Json describe(const std::string& name, const Tensor& tensor) {
  Json entry, shape = Json::array();
  for (int64_t d : tensor.shape()) shape.push_back(d);
  entry["name"] = name;
  entry["dtype"] = dtype_name(tensor.dtype());
  entry["shape"] = std::move(shape);
  return entry;
}

template <class Names, class Get>
void add_tensors(Json& report, const Names& names, Get&& get) {
  Json list = Json::array();
  int64_t elements = 0, bytes = 0;
  for (const auto& name : names) {
    const Tensor tensor = get(name);
    elements += tensor.numel();
    bytes += tensor.bytes();
    list.push_back(describe(name, tensor));
  }
  report["parameters"] = elements;
  report["bytes"] = bytes;
  report["tensors"] = std::move(list);
}

Json inspect_model(const Path& path) {
  Json report;
  report["kind"] = "model directory";
  report["config"] = Json::parse(read_file(path / "config.json", int64_t{1} << 24), (path / "config.json").string());
  const SafetensorsModel model(path);
  add_tensors(report, model.names(), [&](const std::string& name) { return model.tensor(name); });
  return report;
}

Json inspect_checkpoint(const Path& path) {
  Json report;
  report["kind"] = "training checkpoint";
  verify_checkpoint(path);
  report["state"] = read_checkpoint_state(path);
  const SafetensorsFile model(path / "model.safetensors");
  add_tensors(report, model.names(), [&](const std::string& name) { return model.tensor(name); });
  return report;
}

Json inspect_tokens(const Path& path) {
  const TokenSet set(path);
  set.verify();
  Json report;
  report["kind"] = "token set";
  report["tokens"] = set.info().tokens;
  report["documents"] = set.info().documents;
  report["text_bytes"] = set.info().text_bytes;
  report["vocab_size"] = set.info().vocab_size;
  report["end_of_text"] = int64_t{set.info().end_of_text};
  report["tokenizer"] = set.info().tokenizer_fingerprint;
  return report;
}

Json inspect_llama2c(const Path& path) {
  const Llama2cModel model = read_llama2c(path);
  Json report;
  report["kind"] = "llama2.c model";
  report["dim"] = model.dim;
  report["layers"] = model.layers;
  report["heads"] = model.heads;
  report["kv_heads"] = model.kv_heads;
  report["vocab_size"] = model.vocab_size;
  report["context_length"] = model.context_length;
  report["tied"] = model.tied;
  Json list = Json::array();
  for (const auto& [name, tensor] : model.tensors) list.push_back(describe(name, tensor));
  report["tensors"] = std::move(list);
  return report;
}

Json inspect_safetensors(const Path& path) {
  const SafetensorsFile file(path);
  Json report, metadata = Json::object();
  report["kind"] = "safetensors";
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  report["metadata"] = std::move(metadata);
  add_tensors(report, file.names(), [&](const std::string& name) { return file.tensor(name); });
  return report;
}

Json inspect(const std::string& name) {
  const Path path = resolve_model(name);
  const auto has = [&](const char* file) { return std::filesystem::exists(path / file); };
  if (!std::filesystem::exists(path)) fail(ErrorCode::kNotFound, "{}: there is no such file or directory", name);
  if (std::filesystem::is_directory(path)) {
    if (has("MANIFEST.json")) return inspect_checkpoint(path);
    if (has("index.json")) return inspect_tokens(path);
    if (has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json")))
      return inspect_model(path);
  } else {
    if (path.extension() == ".safetensors") return inspect_safetensors(path);
    if (path.extension() == ".bin") return inspect_llama2c(path);
  }
  fail(ErrorCode::kBadFormat, "{}: not a model directory, checkpoint, token set, .safetensors or llama2.c .bin file",
       name);
}

void print_report(const Json& report) {
  for (const auto& [key, value] : report.as_object()) {
    if (key != "tensors") print(fmt::format("{:<16} {}", key, value.is_object() ? "\n" + value.dump(2) : value.dump()));
  }
  if (const Json* tensors = report.find("tensors")) {
    for (const Json& t : tensors->as_array())
      print(fmt::format("{:<60} {:<5} {}", t.at("name").as_string(), t.at("dtype").as_string(), t.at("shape").dump()));
  }
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* c = add_command(app, "inspect", "Say what is in a model, checkpoint, token set or tensor file",
                            "loam inspect run/model", [name](const CommonFlags& flags) {
                              const Json report = inspect(*name);
                              flags.json ? print(report.dump()) : print_report(report);
                              return 0;
                            });
  c->add_option("PATH", *name, "what to look at")->required();
}

}  // namespace loam
