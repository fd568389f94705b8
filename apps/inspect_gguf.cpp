// `loam inspect FILE.gguf`: a model or only a vocabulary, in the form of llama.cpp.
#include "apps/inspect.h"
#include "apps/open_model.h"
#include "loam/base/gguf.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

Json shown(bool value) { return value; }
Json shown(int64_t value) { return value; }
Json shown(double value) { return value; }
Json shown(const std::string& value) { return value; }
// Lists are as long as the vocabulary, or one number a layer.
template <class T>
Json shown(const std::vector<T>& values) {
  constexpr size_t kMost = 256;
  if (values.size() > kMost || std::is_same_v<T, std::string>) return fmt::format("{} values", values.size());
  Json list = Json::array();
  for (const T& value : values) list.push_back(value);
  return list;
}

Json tokenizer_facts(const Gguf& file) {
  try {
    return describe_tokenizer(load_gguf_tokenizer(file));
  } catch (const Error& error) {  // loam does not read it, or it says too little; the rest of the file is as good
    return error.what();
  }
}

}  // namespace

Json inspect_gguf(const Path& path) {
  const Gguf file = Gguf::open(path);
  Json facts, metadata = Json::object(), list = Json::array();
  facts["kind"] = file.tensors().empty() ? "GGUF without tensors" : "GGUF model";
  for (const auto& [key, value] : file.metadata()) {
    metadata[key] = std::visit([](const auto& v) { return shown(v); }, value);
  }
  facts["metadata"] = std::move(metadata);
  if (file.contains("tokenizer.ggml.tokens")) facts["tokenizer"] = tokenizer_facts(file);
  int64_t elements = 0, bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    int64_t count = 1;
    Json shape = Json::array();  // the outermost first, as of other files
    for (auto dim = tensor.dims.rbegin(); dim != tensor.dims.rend(); ++dim) {
      count *= *dim;
      shape.push_back(*dim);
    }
    elements += count;
    bytes += tensor.bytes;
    list.push_back(Json::Object{
        {"name", tensor.name}, {"dtype", std::string(gguf_type_name(tensor.type))}, {"shape", std::move(shape)}});
  }
  facts["parameters"] = elements;
  facts["bytes"] = bytes;
  facts["tensors"] = std::move(list);
  return facts;
}

}  // namespace loam
