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

bool is_run(const Path& directory) {
  const Path file = directory / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return false;
  const Json config = Json::parse(read_file(file, int64_t{1} << 26), file.string());
  return config.is_object() && config.find("optimizer") && config.find("model");
}

Model open_model(const ExecContext& ctx, const std::string& name, DType dtype) {
  const Path path = resolve_model(name);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (is_run(path))
      fail(ErrorCode::kBadFormat, "model {}: this is a run; its model is {}", name, (path / "model").string());
    return load_model(ctx, path, dtype);
  }
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

Json describe_tokenizer(const Tokenizer& tokenizer) {
  std::string longest;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has_token(id) || tokenizer.is_special(id)) continue;
    const std::string& bytes = tokenizer.token_bytes(id);
    if (bytes.size() > longest.size()) longest = bytes;
  }
  Json facts;
  constexpr const char* kKinds[] = {"byte-level BPE", "SentencePiece BPE", "Unigram", "WordPiece", "words"};
  facts["kind"] = kKinds[tokenizer.model().index()];
  facts["vocab_size"] = tokenizer.vocab_size();
  if (const BpeModel* bpe = tokenizer.bpe()) facts["merges"] = static_cast<int64_t>(bpe->merges.size());
  const TokenizerRules& rules = tokenizer.rules();
  if (!rules.pretokenizer.splits().empty()) facts["pattern"] = rules.pretokenizer.description();
  if (!rules.normalizer.empty()) facts["normalizer"] = rules.normalizer.description();
  facts["lossless"] = tokenizer.lossless();
  facts["longest_token"] = longest;
  facts["longest_token_bytes"] = static_cast<int64_t>(longest.size());
  facts["bos_id"] = int64_t{tokenizer.bos_id()};
  facts["end_of_text_id"] = int64_t{tokenizer.end_of_text_id()};
  facts["fingerprint"] = tokenizer.fingerprint();
  return facts;
}

void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  LOAM_CHECK(tokenizer.vocab_size() <= config.vocab_size,
             "the tokenizer has ids up to {}, but the model's embedding only {} rows", tokenizer.vocab_size() - 1,
             config.vocab_size);
}

}  // namespace loam
