#include "apps/open_model.h"

#include <cctype>
#include <cstdlib>

#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

Path hub_cache() {
  if (const char* cache = std::getenv("HF_HUB_CACHE")) return cache;
  if (const char* home = std::getenv("HF_HOME")) return Path(home) / "hub";
  const char* home = std::getenv("HOME");
  return Path(home ? home : "") / ".cache" / "huggingface" / "hub";
}

}  // namespace

Path resolve_model(const std::string& name) {
  if (!name.starts_with("hf:")) return name;
  std::string folder = "models--" + name.substr(3);
  for (size_t slash; (slash = folder.find('/')) != std::string::npos;) folder.replace(slash, 1, "--");
  const Path repository = hub_cache() / folder, main = repository / "refs" / "main";
  std::error_code error;
  if (!std::filesystem::exists(main, error)) {
    fail(ErrorCode::kNotFound, "{}: not in the local cache {}; downloading is not built in", name,
         hub_cache().string());
  }
  std::string revision = read_file(main, 4096);
  while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back()))) revision.pop_back();
  return repository / "snapshots" / revision;
}

Model open_model(const ExecContext& ctx, const std::string& name, DType dtype) {
  const Path path = resolve_model(name);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return load_model(ctx, path, dtype);
  if (!std::filesystem::exists(path, error))
    fail(ErrorCode::kNotFound, "model {}: there is no such file or directory", name);
  if (path.extension() == ".bin") return load_llama2c(ctx, path, dtype);
  fail(ErrorCode::kBadFormat, "model {}: neither a directory in Hugging Face form nor a llama2.c .bin file", name);
}

Tokenizer open_tokenizer(const std::string& name, const std::string& model, int64_t vocab_size) {
  Path path = name;
  if (name.empty()) {
    path = resolve_model(model);
    std::error_code error;
    LOAM_CHECK(std::filesystem::is_directory(path, error), "{} has no tokenizer beside it: name one with --tokenizer",
               model);
  }
  if (path.extension() == ".bin") return load_llama2c_tokenizer(path, vocab_size);
  return load_tokenizer(path);
}

DType parse_compute_dtype(const std::string& name) {
  const DType dtype = parse_dtype(name);
  LOAM_CHECK(dtype == DType::f32 || dtype == DType::bf16, "dtype {}: models compute in f32 or bf16", name);
  return dtype;
}

void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  LOAM_CHECK(tokenizer.vocab_size() <= config.vocab_size,
             "the tokenizer has ids up to {}, but the model's embedding only {} rows", tokenizer.vocab_size() - 1,
             config.vocab_size);
}

}  // namespace loam
