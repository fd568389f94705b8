#include "apps/open_model.h"

#include <cctype>
#include <cstdlib>

#include "loam/base/log.h"
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

std::string kind_of_directory(const Path& directory) {
  const auto has = [&](const Path& name) {
    std::error_code error;
    return std::filesystem::exists(directory / name, error);
  };
  const auto is_run = [&] {
    if (!has("config.json")) return false;
    const Path file = directory / "config.json";
    const Json config = Json::parse(read_file(file, int64_t{1} << 26), file.string());
    return config.is_object() && config.find("optimizer") && config.find("model");
  };
  if (has("MANIFEST.json")) return "training checkpoint";
  if (has("index.json")) return "token set";
  if (has("train/index.json") || has("val/index.json")) return "data directory";
  if (has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json"))) return "model directory";
  if (is_run()) return "training run";
  return tokenizer_in(directory).empty() ? "" : "tokenizer";
}

namespace {

// What to give instead of a directory that is no MODEL.
std::string advice(const Path& directory, const std::string& kind) {
  if (kind == "training run") {
    const Path model = directory / "model";
    return std::filesystem::exists(model) ? "its model is " + model.string() : "it has no model yet";
  }
  if (kind == "training checkpoint") {
    const Path run = std::filesystem::absolute(directory / "..").lexically_normal().parent_path().parent_path();
    return fmt::format("the model of its run is {}", (run / "model").string());
  }
  return "a model is a directory with config.json and model.safetensors, such as model/ in a run";
}

[[noreturn]] void fail_no_model(const std::string& name, const Path& file) {
  const Path ending = file.extension();
  fail(ErrorCode::kBadFormat, "model {}: neither a directory in Hugging Face form nor a llama2.c .bin file{}", name,
       ending == ".safetensors" ? "; give the directory that holds it"
       : ending == ".gguf"      ? "; GGUF models are not read yet"
                                : "");
}

}  // namespace

Model open_model(const ExecContext& ctx, const std::string& name, DType dtype) {
  if (name.empty()) fail(ErrorCode::kNotFound, "model '': the name is empty");
  const Path path = resolve_model(name);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const std::string kind = kind_of_directory(path);
    const bool incomplete = kind.empty() && std::filesystem::exists(path / "config.json", error);
    if (kind == "model directory" || incomplete) return load_model(ctx, path, dtype);
    fail(ErrorCode::kBadFormat, "model {}: this is {}; {}", name,
         kind.empty()          ? "no model directory"
         : kind == "tokenizer" ? "only a tokenizer"
                               : "a " + kind,
         advice(path, kind));
  }
  if (!std::filesystem::exists(path, error))
    fail(ErrorCode::kNotFound, "model {}: there is no such file or directory", name);
  if (path.extension() != ".bin") fail_no_model(name, path);
  return load_llama2c(ctx, path, dtype);
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

Tokenizer open_tokenizer_for(const Model& model, const std::string& model_name, const std::string& name) {
  Tokenizer tokenizer = open_tokenizer(name, model_name, model.config().vocab_size);
  check_tokenizer(tokenizer, name, model, model_name);
  return tokenizer;
}

void check_tokenizer(const Tokenizer& tokenizer, const std::string& name, const Model& model,
                     const std::string& model_name) {
  check_tokenizer(tokenizer, name, model.config().vocab_size, model.tokenizer, model_name);
}

void check_tokenizer(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size,
                     const std::string& recorded, const std::string& model_name) {
  const std::string shown = name.empty() ? "beside " + model_name : name;
  LOAM_CHECK(tokenizer.vocab_size() <= vocab_size,
             "tokenizer {}: it has ids up to {}, but the model's embedding only {} rows: it is another model's", shown,
             tokenizer.vocab_size() - 1, vocab_size);
  std::string expected = recorded;
  if (expected.empty() && !name.empty()) {
    try {
      expected = open_tokenizer("", model_name, vocab_size).fingerprint();
    } catch (const Error&) {  // there is none, or of a kind that loam does not read
      return;
    }
  }
  if (!expected.empty() && expected != tokenizer.fingerprint())
    log_warn("tokenizer {}: not the one {}; its ids may stand for other text", shown,
             recorded.empty() ? "that lies beside the model" : "that the model was trained with");
}

}  // namespace loam
