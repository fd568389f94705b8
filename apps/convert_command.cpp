// `loam convert`: a MODEL in another form or precision.
#include <memory>

#include "apps/commands.h"
#include "apps/convert.h"
#include "apps/open_model.h"
#include "apps/options.h"
#include "loam/base/clock.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/model/families/family.h"
#include "loam/model/weight_copy.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

// A kind of tokenizer that loam does not read is kept as it is, a damaged file is refused.
void check_json_file(const Path& path, const std::string& text) {
  const Json json = Json::parse(text, path.string());
  const bool whole = json.is_object() && (path.filename() != "tokenizer.json" || json.find("model"));
  if (!whole) fail(ErrorCode::kBadFormat, "{}: this is no tokenizer; --tokenizer names another", path.string());
}

// The tokenizer's files as they are, so that nothing another program put there is lost. False if there is none.
bool copy_tokenizer_files(const Path& from, const Path& to) {
  std::vector<std::pair<Path, std::string>> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                           "merges.txt", "tokenizer.model", "chat_template.jinja"}) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(from / name, error)) continue;
    files.emplace_back(name, read_file(from / name));
    if (files.back().first == "tokenizer.json" || files.back().first == "vocab.json")
      check_json_file(from / name, files.back().second);
  }
  for (const auto& [name, bytes] : files) write_file_atomic(to / name, bytes);
  return !files.empty();
}

// The tokenizer in a directory; none if it is of a kind that loam does not read, or not there.
std::optional<Tokenizer> read_tokenizer(const Path& directory) {
  try {
    return load_tokenizer(directory);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) log_warn("{}; it is not checked", error.what());
    return std::nullopt;
  }
}

// Puts the model's tokenizer into `out`: the given one, or the files beside the model.
void write_tokenizer(const ConvertOptions& o, Model& model, SaveModelOptions& save, const Path& out) {
  const Path source = resolve_model(o.from);
  if (!o.tokenizer.empty()) {
    const Tokenizer tokenizer = open_tokenizer_for(model, o.from, o.tokenizer);
    save_tokenizer(tokenizer, out);
    if (tokenizer.bos_id() >= 0) save.bos_id = tokenizer.bos_id();
    if (tokenizer.end_of_text_id() >= 0) save.eos_ids = std::vector<int32_t>{tokenizer.end_of_text_id()};
  } else if (!std::filesystem::is_directory(source) || !copy_tokenizer_files(source, out)) {
    return log_warn("{} has no tokenizer beside it; --tokenizer would put one into {}", o.from, o.to);
  }
  const std::optional<Tokenizer> written = read_tokenizer(o.tokenizer.empty() ? source : out);
  if (!written) return;
  if (o.tokenizer.empty()) check_tokenizer(*written, "", model, o.from);
  if (model.tokenizer.empty()) model.tokenizer = written->fingerprint();
}

// What the weights take in a file whose matrices are of `dtype`.
int64_t file_bytes(const ParamStore& weights, DType dtype) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < weights.size(); ++i) {
    const ParamSpec& spec = weights.spec(i);
    bytes += spec.shape.product() * dtype_size(spec.kind == ParamKind::vector ? DType::f32 : dtype);
  }
  return bytes;
}

Json convert_to_directory(const ConvertOptions& o, int threads) {
  if (o.dtype == "f16") throw UsageError("--dtype f16: of GGUF files only; directories hold f32 or bf16");
  AtomicDirectory out(Path(o.to), o.force,
                      {"*config.json", "model*.safetensors*", "tokenizer.json", "vocab.json", "merges.txt"});
  const ExecResources exec = make_exec_resources(Device{}, threads);
  Model model = open_model(exec.context, o.from, DType::f32);
  SaveModelOptions save;
  save.dtype = parse_dtype(o.dtype);
  save.family = o.family;
  save.shard_bytes = o.shard_bytes;
  write_tokenizer(o, model, save, out.path());
  Progress progress("writing", file_bytes(*model.weights, save.dtype), "bytes");
  save.on_bytes = [&](int64_t bytes) {
    check_interrupt();
    progress.advance(bytes);
  };
  NonFiniteWarnings warnings;
  save.on_tensor = [&](const std::string& name, const Tensor& t) { warnings.look_at(name, t, threads); };
  save_model(exec.context, model, out.path(), save);
  progress.finish();
  warnings.finish();
  Json report;
  report["out"] = o.to;
  report["family"] = Json::parse(read_file(out.path() / "config.json")).at("model_type");
  report["dtype"] = o.dtype;
  report["parameters"] = model.weights->parameter_count();
  out.commit();
  return report;
}

int run(const ConvertOptions& o, const CommonFlags& flags) {
  const Stopwatch watch;
  Json report = o.to.ends_with(".gguf") ? convert_to_gguf(o, flags.threads) : convert_to_directory(o, flags.threads);
  report["seconds"] = watch.seconds();
  if (flags.json || !flags.quiet) print(flags.json ? report.dump() : o.to);
  return 0;
}

}  // namespace

void NonFiniteWarnings::look_at(const std::string& name, const Tensor& tensor, int threads) {
  const NonFinite found = count_non_finite(tensor, threads);
  if (found.nan + found.infinite == 0) return;
  if (++tensors_ > kShown) return;
  log_warn("tensor {}: {} of its {} values are NaN, {} infinite", name, found.nan, tensor.numel(), found.infinite);
}
void NonFiniteWarnings::finish() const {
  if (tensors_ > kShown) log_warn("{} tensors more have values that are NaN or infinite", tensors_ - kShown);
}

void add_convert_command(Command& program) {
  auto o = std::make_shared<ConvertOptions>();
  o->shard_bytes = SaveModelOptions().shard_bytes;
  Command c = program.add_command("convert", "Write a model in Hugging Face form, or as GGUF for llama.cpp",
                                  "loam convert --from stories260K.bin --tokenizer tok512.bin --to stories260K",
                                  [o](const CommonFlags& flags) { return run(*o, flags); });
  c.add_option("--from", o->from, "MODEL").required();
  c.add_option("--to", o->to, "new directory, or a file in .gguf").required();
  c.add_option("--tokenizer", o->tokenizer, "TOKENIZER (default: the model's)");
  c.add_option("--dtype", o->dtype, "of matrices in the file; f16: GGUF only")
      .one_of({"f32", "bf16", "f16"})
      .show_default(o->dtype);
  std::vector<std::string> names;
  for (const Family* family : families()) names.push_back(family->name);
  c.add_option("--family", o->family, "form of a directory (default: the one it was read as)").one_of(names);
  add_bytes(c, "--shard-size", o->shard_bytes, "most bytes of tensors in one file: 5GB", 1);
  c.add_flag("--force", o->force, "replace --to");
}

}  // namespace loam
