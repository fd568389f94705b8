#include "loam/model/gguf_model.h"

#include <algorithm>

#include "loam/model/families/gguf_form.h"
#include "loam/model/tensor_places.h"
#include "loam/model/transformer.h"
#include "loam/model/weight_copy.h"

namespace loam {
namespace {

constexpr std::string_view kHead = "output.weight", kPositions = "position_embd.weight";

struct TypeNumbers {
  DType dtype;
  uint32_t tensor, file;  // ggml's number of the type, and general.file_type of a file that has mostly this one
};
constexpr TypeNumbers kTypes[] = {{DType::f32, kGgufF32, 0}, {DType::f16, kGgufF16, 1}, {DType::bf16, kGgufBf16, 32}};

const TypeNumbers& numbers_of(DType dtype) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.dtype == dtype; });
  LOAM_CHECK(found != std::end(kTypes), "GGUF: matrices are written in f32, bf16 or f16, not {}", dtype_name(dtype));
  return *found;
}

// One tensor of the GGUF file and where it comes from.
struct Part {
  std::string name;
  Place place;
};

std::vector<Part> parts_of(const GgufForm& form, const Family& family, const ModelConfig& config, ParamStore& store) {
  std::vector<Part> parts;
  const std::vector<TensorRule> rules = rules_of_layers(family, config);
  const std::vector<Place> places = places_of(family, config, store);
  for (size_t i = 0; i < rules.size(); ++i) parts.push_back({gguf_name(rules[i]), places[i]});
  if (!form.own_head || !config.tied_embeddings) return parts;
  const int32_t table = store.find("embedding").index;
  const auto tied = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.place.param == table; });
  parts.push_back({std::string(kHead), tied->place});
  return parts;
}

DType dtype_of(const Part& part, DType matrices) {
  return part.place.shape.rank() == 1 || part.name == kPositions ? DType::f32 : matrices;
}

GgufTensor header_of(const Part& part, DType matrices) {
  GgufTensor tensor{part.name, {}, numbers_of(dtype_of(part, matrices)).tensor};
  for (const int64_t dim : part.place.shape) tensor.dims.insert(tensor.dims.begin(), dim);
  return tensor;
}

bool is_norm(const Part& part) { return part.name.ends_with("norm.weight"); }

void check_range(const Path& directory, const std::string& name, const Tensor& from, const Tensor& to, int threads) {
  const int64_t lost = count_non_finite(to, threads).infinite - count_non_finite(from, threads).infinite;
  if (lost == 0) return;
  fail(ErrorCode::kInvalidArgument,
       "{}: tensor {}: {} of its {} values are beyond the range of f16 (65504); --dtype bf16 holds them",
       directory.string(), name, lost, to.numel());
}

// The tensor as the file wants it. `file`: as the directory has it.
Tensor converted(const ExecContext& ctx, const Part& part, const Tensor& file, DType dtype, const ModelConfig& config) {
  const Tensor out = ctx.empty(part.place.shape, dtype, MemoryKind::other);
  copy_weights(part.place.transposed ? file.transpose(0, 1) : file, out, inverse(file_order(part.place, config)),
               ctx.threads);
  if (is_norm(part) && config.norm_scale == NormScale::one_plus_weight) {
    for (float& value : out.span<float>()) value += 1;
  }
  return out;
}

std::vector<GgufField> general_fields(const GgufForm& form, const GgufModelOptions& options) {
  std::vector<GgufField> fields{{"general.architecture", std::string(form.architecture)},
                                {"general.type", std::string("model")},
                                {"general.file_type", numbers_of(options.dtype).file},
                                {"general.quantization_version", uint32_t{2}}};
  if (!options.name.empty()) fields.push_back({"general.name", options.name});
  return fields;
}

}  // namespace

GgufModel::GgufModel(const Path& directory) : directory_(directory), read_(read_model_config(directory)) {
  try {
    const GgufForm& form = gguf_form(*read_.family, read_.config);
    check_gguf(form, read_.config);
    read_.config.rope_pairs = form.pairs;  // rows are put in the order that a model of such pairs has
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", directory.string(), error.what());
  }
}

int64_t GgufModel::bytes(DType dtype) const {
  ParamStore store;
  const Transformer declared(store, read_.config);
  int64_t bytes = 0;
  for (const Part& part : parts_of(gguf_form(*read_.family, read_.config), *read_.family, read_.config, store)) {
    bytes += part.place.shape.product() * dtype_size(dtype_of(part, dtype));
  }
  return bytes;
}

void GgufModel::write(const ExecContext& ctx, const Path& file, const GgufModelOptions& options) const {
  const GgufForm& form = gguf_form(*read_.family, read_.config);
  ParamStore store;
  const Transformer declared(store, read_.config);
  const FileTensors source(directory_, *read_.family);
  const std::vector<Part> parts = parts_of(form, *read_.family, read_.config, store);
  check_places(source, places_of(*read_.family, read_.config, store), read_.config, store);

  std::vector<GgufField> fields = general_fields(form, options);
  const std::vector<GgufField> sizes = gguf_fields(form, read_.config);
  fields.insert(fields.end(), sizes.begin(), sizes.end());
  if (options.tokenizer.empty()) fields.push_back({"tokenizer.ggml.model", std::string("no_vocab")});
  fields.insert(fields.end(), options.tokenizer.begin(), options.tokenizer.end());
  const auto factors = gguf_rope_factors(read_.config);
  std::vector<GgufTensor> headers;
  for (const auto& [name, values] : factors) headers.push_back({name, {static_cast<int64_t>(values.size())}});
  for (const Part& part : parts) headers.push_back(header_of(part, options.dtype));

  const auto heard = [&](int64_t bytes) {
    if (options.on_bytes) options.on_bytes(bytes);
  };
  GgufWriter writer(file, fields, std::move(headers));
  for (const auto& [name, values] : factors) {
    writer.write(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  for (const Part& part : parts) {
    heard(0);
    const DType dtype = dtype_of(part, options.dtype);
    const Tensor own = source.tensor(part.place.file_name), tensor = converted(ctx, part, own, dtype, read_.config);
    if (dtype == DType::f16) check_range(directory_, part.name, own, tensor, ctx.threads);
    if (options.on_tensor) options.on_tensor(part.name, tensor);
    writer.write(tensor.view().data, tensor.bytes());
    heard(tensor.bytes());
  }
  writer.commit();
}

}  // namespace loam
