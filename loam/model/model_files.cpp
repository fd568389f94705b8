#include "loam/model/model_files.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "loam/base/log.h"
#include "loam/base/utf8.h"
#include "loam/format/safetensors.h"
#include "loam/model/families/family.h"
#include "loam/model/weight_copy.h"

namespace loam {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// Where one tensor of a file belongs: rows [begin, begin + rows) of a parameter.
struct Place {
  std::string file_name;
  int32_t param;
  int64_t begin, rows;
  Shape shape;  // of those rows
  bool transposed, rotary;
  Shape file_shape() const { return transposed ? Shape{shape[1], shape[0]} : shape; }
};

std::string with_layer(const std::string& pattern, int64_t layer) {
  const size_t at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

Place place_of(const TensorRule& rule, int64_t layer, ParamStore& store) {
  const ParamRef param = store.find(with_layer(rule.param, layer));
  const ParamSpec& spec = store.spec(param.index);
  Place place{
      with_layer(rule.file_name, layer), param.index, 0, spec.shape[0], spec.shape, rule.transposed, rule.rotary};
  if (rule.slice.empty()) return place;
  const auto slice =
      std::find_if(spec.slices.begin(), spec.slices.end(), [&](const RowSlice& s) { return s.name == rule.slice; });
  if (slice == spec.slices.end()) {
    fail(ErrorCode::kInternal, "parameter {} has no slice {}", spec.name, rule.slice);
  }
  place.begin = slice->begin;
  place.rows = place.shape[0] = slice->rows;
  return place;
}

// All tensors of a model's file, layer after layer.
std::vector<Place> places_of(const Family& family, const ModelConfig& config, ParamStore& store) {
  std::vector<Place> places;
  const std::vector<TensorRule> rules = family.rules(config);
  const auto is_layered = [](const TensorRule& rule) { return rule.file_name.find("{}") != std::string::npos; };
  const auto first = std::find_if(rules.begin(), rules.end(), is_layered);
  const auto last = std::find_if_not(first, rules.end(), is_layered);
  for (auto rule = rules.begin(); rule != first; ++rule) places.push_back(place_of(*rule, 0, store));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (auto rule = first; rule != last; ++rule) places.push_back(place_of(*rule, layer, store));
  }
  for (auto rule = last; rule != rules.end(); ++rule) places.push_back(place_of(*rule, 0, store));
  return places;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8, kLongest = 100;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i ? ", " : "") + printable(names[i], false, kLongest);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

// The tensors of a directory under the names that the family's rules use.
class FileTensors {
 public:
  FileTensors(const Path& directory, const Family& family) : files_(directory), family_(family) {
    const std::vector<std::string> names = files_.names();
    bare_ =
        std::none_of(names.begin(), names.end(), [&](const std::string& n) { return n.starts_with(family.prefix); });
  }
  bool contains(const std::string& name) const { return files_.contains(real_name(name)); }
  Tensor tensor(const std::string& name) const { return files_.tensor(real_name(name)); }

  // Error{kBadFormat} that lists the tensors that are missing and those that belong nowhere, or names the first of a
  // wrong shape or dtype.
  void check(const std::vector<Place>& places, bool tied, const Path& directory) const {
    std::vector<std::string> missing, left_over;
    std::set<std::string> wanted;
    for (const Place& place : places) {
      wanted.insert(real_name(place.file_name));
      if (!contains(place.file_name)) missing.push_back(real_name(place.file_name));
    }
    for (const std::string& name : files_.names()) {
      const bool ignored = std::any_of(family_.ignored_suffixes.begin(), family_.ignored_suffixes.end(),
                                       [&](const std::string& suffix) { return name.ends_with(suffix); });
      if (!ignored && !wanted.contains(name) && !(tied && name == kHead)) left_over.push_back(name);
    }
    if (!missing.empty() || !left_over.empty()) {
      std::string what;
      if (!missing.empty()) what = fmt::format("{} tensors are missing: {}", missing.size(), listed(missing));
      if (!left_over.empty()) {
        what += fmt::format("{}{} tensors belong nowhere: {}", what.empty() ? "" : "; ", left_over.size(),
                            listed(left_over));
      }
      fail(ErrorCode::kBadFormat, "{}: {}", directory.string(), what);
    }
    for (const Place& place : places) check_one(place, directory);
  }

  static constexpr const char* kHead = "lm_head.weight";

 private:
  std::string real_name(const std::string& name) const {
    return bare_ && name.starts_with(family_.prefix) ? name.substr(family_.prefix.size()) : name;
  }
  void check_one(const Place& place, const Path& directory) const {
    const Tensor t = tensor(place.file_name);
    if (t.shape() != place.file_shape()) {
      fail(ErrorCode::kBadFormat, "{}: {} has shape {}, the configuration makes {}", directory.string(),
           place.file_name, t.shape().str(), place.file_shape().str());
    }
    if (t.dtype() != DType::f32 && t.dtype() != DType::bf16 && t.dtype() != DType::f16) {
      fail(ErrorCode::kBadFormat, "{}: {} has dtype {}, not a float type", directory.string(), place.file_name,
           dtype_name(t.dtype()));
    }
  }

  SafetensorsModel files_;
  const Family& family_;
  bool bare_ = false;
};

// The name of the embedding's table in the file.
std::string embedding_name(const std::vector<Place>& places, ParamStore& store) {
  const int32_t embedding = store.find("embedding").index;
  const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.param == embedding; });
  if (place == places.end()) fail(ErrorCode::kInternal, "a family without an embedding");
  return place->file_name;
}

// A tied file may repeat the table as its head, but not contradict it.
void check_tied_head(const FileTensors& file, const std::string& embedding, const Path& directory) {
  if (!file.contains(FileTensors::kHead)) return;
  const Tensor head = file.tensor(FileTensors::kHead), table = file.tensor(embedding);
  const bool equal = head.shape() == table.shape() && head.dtype() == table.dtype() &&
                     std::memcmp(head.view().data, table.view().data, static_cast<size_t>(head.bytes())) == 0;
  if (!equal) {
    fail(ErrorCode::kBadFormat, "{}: the configuration ties the head to the embedding, but {} differs from {}",
         directory.string(), FileTensors::kHead, embedding);
  }
}

struct GenerationIds {
  std::optional<int32_t> bos;
  std::optional<std::vector<int32_t>> eos;
};

// An id or a list of ids; nullopt if nothing is stated.
std::optional<std::vector<int32_t>> ids_of(const Json& json, const char* key, int64_t vocab_size,
                                           const std::string& file) {
  const Json* value = json.find(key);
  if (!value || value->is_null()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Json& id : value->is_array() ? value->as_array() : Json::Array{*value}) {
    if (!id.is_int()) fail(ErrorCode::kBadFormat, "\"{}\": expected an id or a list of ids", key);
    if (id.as_int() >= 0 && id.as_int() < vocab_size) {
      ids.push_back(static_cast<int32_t>(id.as_int()));
    } else {
      log_warn("{}: \"{}\": {} is ignored: the vocabulary has {} ids", file, key, id.as_int(), vocab_size);
    }
  }
  return ids;
}

GenerationIds generation_ids(const Json& json, int64_t vocab_size, const std::string& file) {
  GenerationIds ids;
  if (const auto bos = ids_of(json, "bos_token_id", vocab_size, file); bos && !bos->empty()) ids.bos = bos->front();
  ids.eos = ids_of(json, "eos_token_id", vocab_size, file);
  return ids;
}

struct ReadConfig {
  const Family* family;
  ModelConfig config;
  GenerationIds ids;
};

// Parses a file and works on it; every error names the file.
template <class Work>
auto with_json(const Path& file, const Work& work) {
  const Json json = Json::parse(read_file(file, kMaxConfigBytes), file.string());
  try {
    if (!json.is_object()) fail(ErrorCode::kBadFormat, "it is not an object");
    return work(json);
  } catch (const Error& error) {
    fail(ErrorCode::kBadFormat, "{}: {}", file.string(), error.what());
  }
}

ReadConfig read_config(const Path& directory) {
  const Path file = directory / "config.json", generation = directory / "generation_config.json";
  ReadConfig read = with_json(file, [&](const Json& json) {
    const Json* type = json.find("model_type");
    if (!type || !type->is_string()) fail(ErrorCode::kBadFormat, "\"model_type\" is missing");
    const Family& family = family_named(type->as_string());
    const ModelConfig config = derive(family.read(json));
    LOAM_CHECK(config.vocab_size > 0, "\"vocab_size\" is 0");
    return ReadConfig{&family, config, generation_ids(json, config.vocab_size, file.string())};
  });
  std::error_code error;
  if (!std::filesystem::exists(generation, error)) return read;
  const GenerationIds stated = with_json(
      generation, [&](const Json& json) { return generation_ids(json, read.config.vocab_size, generation.string()); });
  if (stated.bos) read.ids.bos = stated.bos;
  if (stated.eos) read.ids.eos = stated.eos;
  return read;
}

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
  const ReadConfig read = read_config(directory);
  Model model = declared_model(read.config);
  model.family = read.family->name;
  model.bos_id = read.ids.bos.value_or(-1);
  model.eos_ids = read.ids.eos.value_or(std::vector<int32_t>{});
  const FileTensors file(directory, *read.family);
  const std::vector<Place> places = places_of(*read.family, read.config, *model.weights);
  // The file vouches for the sizes of the configuration before memory is taken for them.
  file.check(places, read.config.tied_embeddings, directory);
  if (read.config.tied_embeddings) check_tied_head(file, embedding_name(places, *model.weights), directory);

  allocate(ctx, model, compute_dtype, with_gradients);
  for (const Place& place : places) {
    const Tensor tensor = file.tensor(place.file_name);
    copy_weights(place.transposed ? tensor.transpose(0, 1) : tensor,
                 model.weights->value(place.param).narrow(0, place.begin, place.rows), {}, ctx.threads);
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
  const char* dtype_text = dtype == DType::bf16 ? "bfloat16" : "float32";
  Json json = Json::object();
  json["architectures"] = Json(Json::Array{Json(family.architecture)});
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
  const Tensor rows = weight.narrow(0, place.begin, place.rows);
  const bool reorder = place.rotary && config.rope_pairs == RopePairs::interleaved;
  if (!place.transposed && !reorder && rows.dtype() == dtype && rows.is_contiguous()) return rows;
  const Tensor out = ctx.empty(place.file_shape(), dtype, MemoryKind::other);
  copy_weights(rows, place.transposed ? out.transpose(0, 1) : out,
               reorder ? half_order(place.rows, config.head_dim) : std::vector<int64_t>{}, ctx.threads);
  return out;
}

const Family& family_to_write(const Model& model, const SaveModelOptions& options) {
  const std::string& name = options.family.empty() ? model.family : options.family;
  if (name.empty()) return family_for(model.config());
  const Family& family = family_named(name);
  LOAM_CHECK(family.fits(model.config()), "the model cannot be written as {}: {}", name,
             config_to_json(model.config()).dump());
  return family;
}

}  // namespace

void save_model(const ExecContext& ctx, const Model& model, const Path& directory, const SaveModelOptions& options) {
  save_model(
      ctx, model, [&](int32_t index) { return model.weights->value(index); }, directory, options);
}

void save_model(const ExecContext& ctx, const Model& model, const std::function<Tensor(int32_t index)>& weight,
                const Path& directory, const SaveModelOptions& options) {
  LOAM_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16, "models are written in f32 or bf16, not {}",
             dtype_name(options.dtype));
  const ModelConfig& config = model.config();
  const Family& family = family_to_write(model, options);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Place& place : places_of(family, config, *model.weights)) {
    const ParamSpec& spec = model.weights->spec(place.param);
    const Tensor value = weight(place.param);
    LOAM_CHECK(value && value.shape() == spec.shape && value.device().kind == DeviceKind::cpu,
               "parameter {}: its value to be written must be {} on the CPU", spec.name, spec.shape.str());
    const DType dtype = spec.kind == ParamKind::vector ? DType::f32 : options.dtype;
    if (options.on_bytes) options.on_bytes(0);
    tensors.emplace_back(place.file_name, file_tensor(ctx, place, value, dtype, config));
  }
  const int32_t bos_id = options.bos_id.value_or(model.bos_id);
  const Json bos = bos_id < 0 ? Json() : Json(int64_t{bos_id}), eos = ids_json(options.eos_ids.value_or(model.eos_ids));
  const Json json = config_json(family, config, options.dtype, bos, eos);
  Json generation = Json::object();
  generation["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id"}) generation[key] = json.at(key);

  write_safetensors(directory / "model.safetensors", tensors, {{"format", "pt"}}, options.on_bytes);
  write_file_atomic(directory / "generation_config.json", generation.dump(2) + "\n");
  write_file_atomic(directory / "config.json", json.dump(2) + "\n");
}

}  // namespace loam
