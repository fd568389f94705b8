#include "loam/model/model_files.h"

#include <algorithm>

#include "loam/format/safetensors.h"
#include "loam/model/config_file.h"
#include "loam/model/families/family.h"
#include "loam/model/file_tensors.h"
#include "loam/model/tensor_places.h"
#include "loam/model/weight_copy.h"

namespace loam {
namespace {

Model declared_model(const ModelConfig& config) {
  Model model;
  model.weights = std::make_unique<ParamStore>();
  model.transformer = std::make_unique<Transformer>(*model.weights, config);
  return model;
}

void allocate(const ExecContext& ctx, Model& model, DType compute_dtype, bool with_gradients) {
  model.weights->allocate(ctx, compute_dtype, with_gradients);
  model.transformer->allocate(ctx);
}

}  // namespace

Model make_model(const ExecContext& ctx, const ModelConfig& config, DType compute_dtype, bool with_gradients) {
  Model model = declared_model(derive(config));
  allocate(ctx, model, compute_dtype, with_gradients);
  return model;
}

Model load_model(const ExecContext& ctx, const Path& directory, DType compute_dtype, bool with_gradients) {
  const ModelFileConfig read = read_model_config(directory);
  Model model = declared_model(read.config);
  model.family = read.family->name;
  model.bos_id = read.bos_id;
  model.eos_ids = read.eos_ids;
  const FileTensors file(directory, *read.family);
  model.tokenizer = file.metadata(kTokenizerKey);
  const std::vector<Place> places = places_of(*read.family, read.config, *model.weights);
  // The file vouches for the sizes of the configuration before memory is taken for them.
  check_places(file, places, read.config, *model.weights);

  allocate(ctx, model, compute_dtype, with_gradients);
  for (const Place& place : places) {
    const Tensor tensor = file.tensor(place.file_name);
    Tensor rows = model.weights->value(place.param).narrow(0, place.begin, place.rows);
    const bool here = rows.device().kind == DeviceKind::cpu;
    const Tensor host = here ? rows : Tensor::empty(*Arena::create({}), rows.shape(), rows.dtype());
    copy_weights(place.transposed ? tensor.transpose(0, 1) : tensor, host, inverse(file_order(place, read.config)),
                 ctx.threads);
    if (!here) rows.copy_from(host);
  }
  model.weights->mark_changed();
  return model;
}

namespace {

// As transformers writes it: one id as a number, several as a list.
Json ids_json(const std::vector<int32_t>& ids) {
  if (ids.empty()) return {};
  if (ids.size() == 1) return Json(int64_t{ids[0]});
  Json list = Json::array();
  for (const int32_t id : ids) list.push_back(int64_t{id});
  return list;
}

Json config_json(const Family& family, const ModelConfig& config, DType dtype, const Json& bos, const Json& eos) {
  const char* dtype_text = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  Json json = Json::object();
  const bool scalar = config.head == HeadKind::scalar;
  json["architectures"] = Json(Json::Array{Json(scalar ? family.classifier : family.architecture)});
  if (scalar) json["id2label"] = Json(Json::Object{{"0", "LABEL_0"}});
  json["model_type"] = family.name;
  json["torch_dtype"] = dtype_text;  // transformers 4
  json["dtype"] = dtype_text;        // transformers 5
  json["bos_token_id"] = bos;
  json["eos_token_id"] = eos;
  const Json written = family.write(config);
  for (const auto& [key, value] : written.as_object()) json[key] = value;
  return json;
}

// A parameter's rows as the file wants them: the memory of `weight` itself where nothing changes.
Tensor file_tensor(const ExecContext& ctx, const Place& place, const Tensor& weight, DType dtype,
                   const ModelConfig& config) {
  const Tensor rows = weight.narrow(0, place.begin, place.rows).to_host();
  const std::vector<int64_t> order = file_order(place, config);
  if (!place.transposed && order.empty() && rows.dtype() == dtype && rows.is_contiguous()) return rows;
  const bool here = ctx.device.kind == DeviceKind::cpu;
  const Tensor out =
      Tensor::empty(here ? *ctx.arena : *Arena::create({}), place.file_shape(), dtype, MemoryKind::other);
  copy_weights(rows, place.transposed ? out.transpose(0, 1) : out, order, ctx.threads);
  return out;
}

DType file_dtype(const ParamSpec& spec, DType dtype) { return spec.kind == ParamKind::vector ? DType::f32 : dtype; }

int64_t file_bytes(const Place& place, ParamStore& weights, DType dtype) {
  return place.shape.product() * dtype_size(file_dtype(weights.spec(place.param), dtype));
}

std::vector<std::vector<Place>> cut_into_shards(const std::vector<Place>& places, ParamStore& weights,
                                                const SaveModelOptions& options) {
  std::vector<std::vector<Place>> shards(1);
  int64_t bytes = 0;
  for (const Place& place : places) {
    const int64_t more = file_bytes(place, weights, options.dtype);
    if (bytes > 0 && bytes + more > options.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(place);
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Json index_json(const std::vector<std::vector<Place>>& shards, ParamStore& weights, const SaveModelOptions& options) {
  Json map = Json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const Place& place : shards[i]) {
      map[place.file_name] = shard_name(i, shards.size());
      total += file_bytes(place, weights, options.dtype);
    }
  }
  return Json(Json::Object{{"metadata", Json(Json::Object{{"total_size", total}})}, {"weight_map", map}});
}

const Family& family_to_write(const Model& model, const SaveModelOptions& options) {
  const std::string& name = options.family.empty() ? model.family : options.family;
  if (name.empty()) return family_for(model.config());
  const Family& family = family_named(name);
  if (can_hold(family, model.config())) return family;
  std::string fitting;
  for (const Family* other : families()) {
    if (can_hold(*other, model.config())) fitting += (fitting.empty() ? "" : ", ") + std::string(other->name);
  }
  fail(ErrorCode::kInvalidArgument, "the model cannot be written as {}{}", name,
       fitting.empty() ? ", nor as any other family" : "; it can as " + fitting);
}

}  // namespace

void save_model(const ExecContext& ctx, const Model& model, const Path& directory, const SaveModelOptions& options) {
  save_model(
      ctx, model, [&](int32_t index) { return model.weights->value(index); }, directory, options);
}

void save_model(const ExecContext& ctx, const Model& model, const std::function<Tensor(int32_t index)>& weight,
                const Path& directory, const SaveModelOptions& options) {
  LOAM_CHECK(is_float(options.dtype), "models are written in f32, bf16 or f16, not {}", dtype_name(options.dtype));
  const ModelConfig& config = model.config();
  const Family& family = family_to_write(model, options);
  const int32_t bos_id = options.bos_id.value_or(model.bos_id);
  const Json bos = bos_id < 0 ? Json() : Json(int64_t{bos_id}), eos = ids_json(options.eos_ids.value_or(model.eos_ids));
  const Json json = config_json(family, config, options.dtype, bos, eos);
  Json generation = Json::object();
  generation["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id"}) generation[key] = json.at(key);

  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (!model.tokenizer.empty()) metadata[kTokenizerKey] = model.tokenizer;
  const auto tensor_of = [&](const Place& place) {
    const ParamSpec& spec = model.weights->spec(place.param);
    const Tensor value = weight(place.param);
    LOAM_CHECK(value && value.shape() == spec.shape, "parameter {}: its value to be written must be {}", spec.name,
               spec.shape.str());
    if (options.on_bytes) options.on_bytes(0);
    const Tensor written = file_tensor(ctx, place, value, file_dtype(spec, options.dtype), config);
    if (options.on_tensor) options.on_tensor(place.file_name, written);
    return written;
  };
  // A reader prefers one file to an index.
  for (const char* earlier : {"model.safetensors", "model.safetensors.index.json"}) {
    std::filesystem::remove(directory / earlier);
  }
  const auto shards = cut_into_shards(places_of(family, config, *model.weights), *model.weights, options);
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const Place& place : shards[i]) tensors.emplace_back(place.file_name, tensor_of(place));
    write_safetensors(directory / shard_name(i, shards.size()), tensors, metadata, options.on_bytes);
  }
  if (shards.size() > 1) {
    write_file_atomic(directory / "model.safetensors.index.json",
                      index_json(shards, *model.weights, options).dump(2) + "\n");
  }
  write_file_atomic(directory / "generation_config.json", generation.dump(2) + "\n");
  write_file_atomic(directory / "config.json", json.dump(2) + "\n");
}

}  // namespace loam
