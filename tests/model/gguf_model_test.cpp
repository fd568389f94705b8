// GGUF files against those of llama.cpp's converter (tests/fixtures/make_gguf_fixture.py).
#include "loam/model/gguf_model.h"

#include "loam/base/hash.h"
#include "loam/base/mmap.h"
#include "loam/model/families/gguf_form.h"
#include "loam/model/weight_copy.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using testing::fixture;
using testing::TempDir;

// A copy of a fixture with some keys of config.json changed; weights do not depend on these.
void copy_changed(const std::string& name, const Json& changes, const Path& to) {
  std::filesystem::copy(fixture(name), to);
  Json config = Json::parse(read_file(to / "config.json"), "config.json");
  for (const auto& [key, value] : changes.as_object()) config[key] = value;
  write_file_atomic(to / "config.json", config.dump());
}

std::string_view data_of(const MappedFile& file, const GgufTensor& tensor) {
  return file.text().substr(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
}

void expect_key(const Gguf& file, const std::string& key, const Json& wanted) {
  ASSERT_TRUE(file.contains(key)) << key;
  if (wanted.is_string()) {
    EXPECT_EQ(file.at<std::string>(key), wanted.as_string()) << key;
  } else if (wanted.is_bool()) {
    EXPECT_EQ(file.at<bool>(key), wanted.as_bool()) << key;
  } else if (wanted.is_int()) {
    EXPECT_EQ(file.at<int64_t>(key), wanted.as_int()) << key;
  } else {
    EXPECT_NEAR(file.at<double>(key), wanted.as_double(), 1e-7 * wanted.as_double()) << key;
  }
}

void expect_tensor(const MappedFile& map, const Gguf& file, const std::string& name, const Json::Array& wanted) {
  const GgufTensor* tensor = file.find_tensor(name);
  ASSERT_TRUE(tensor) << name;
  EXPECT_EQ(gguf_type_name(tensor->type), wanted[0].as_string()) << name;
  Json dims = Json::array();
  for (const int64_t dim : tensor->dims) dims.push_back(dim);
  EXPECT_EQ(dims, wanted[1]) << name;
  const std::string_view data = data_of(map, *tensor);
  if (!wanted[2].is_array()) {
    EXPECT_EQ(int64_t{crc32(data)}, wanted[2].as_int()) << name;
    return;
  }
  const auto* values = reinterpret_cast<const float*>(data.data());
  for (size_t i = 0; i < wanted[2].as_array().size(); ++i) {
    const double value = wanted[2].as_array()[i].as_double();
    EXPECT_NEAR(values[i], value, 1e-6 * value) << name;
  }
}

TEST(GgufModel, HasTheTensorsAndKeysOfLlamaCppsConverter) {
  const Path path = testing::source_path("tests/fixtures/gguf/models.json");
  const Json models = Json::parse(read_file(path), path.string());
  ASSERT_EQ(models.as_object().size(), 13u);
  const ExecResources exec = make_exec_resources(Device{}, 2);
  for (const auto& [name, facts] : models.as_object()) {
    SCOPED_TRACE(name);
    const TempDir directory;
    copy_changed(name, facts.at("changes"), directory / "model");
    const GgufModel model(directory / "model");
    int64_t heard = 0;
    GgufModelOptions options;
    options.on_bytes = [&](int64_t bytes) { heard += bytes; };
    model.write(exec.context, directory / "a.gguf", options);
    EXPECT_EQ(heard, model.bytes(DType::f32));
    const Gguf file = Gguf::open(directory / "a.gguf");
    const MappedFile map(directory / "a.gguf");
    EXPECT_EQ(file.at<std::string>("general.architecture"), facts.at("architecture").as_string());
    EXPECT_EQ(file.at<int64_t>("general.file_type"), 0);
    for (const auto& [key, value] : facts.at("keys").as_object()) {
      if (!(key.ends_with("sliding_window") && value == Json(int64_t{0}))) expect_key(file, key, value);
    }
    EXPECT_EQ(file.tensors().size(), facts.at("tensors").as_object().size());
    for (const auto& [tensor, wanted] : facts.at("tensors").as_object()) {
      expect_tensor(map, file, tensor, wanted.as_array());
    }
  }
}

// The least a user expects of the narrow types: what f32 holds, rounded once; vectors stay.
TEST(GgufModel, RoundsMatricesOnly) {
  const TempDir directory;
  const ExecResources exec = make_exec_resources(Device{}, 2);
  const GgufModel model(fixture("llama_tied"));
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    GgufModelOptions options;
    options.dtype = parse_dtype(dtype);
    options.name = "tiny";
    model.write(exec.context, directory / (std::string(dtype) + ".gguf"), options);
  }
  const Gguf wide = Gguf::open(directory / "f32.gguf"), half = Gguf::open(directory / "f16.gguf");
  const Gguf brain = Gguf::open(directory / "bf16.gguf");
  EXPECT_EQ(half.at<int64_t>("general.file_type"), 1);
  EXPECT_EQ(brain.at<int64_t>("general.file_type"), 32);
  EXPECT_EQ(half.at<std::string>("general.name"), "tiny");
  EXPECT_EQ(half.at<std::string>("tokenizer.ggml.model"), "no_vocab");
  const MappedFile wide_map(directory / "f32.gguf"), half_map(directory / "f16.gguf");
  const MappedFile brain_map(directory / "bf16.gguf");
  for (const GgufTensor& tensor : wide.tensors()) {
    const GgufTensor* narrow = half.find_tensor(tensor.name);
    ASSERT_TRUE(narrow);
    EXPECT_EQ(narrow->type, tensor.dims.size() == 1 ? kGgufF32 : kGgufF16);
    EXPECT_EQ(brain.find_tensor(tensor.name)->type, tensor.dims.size() == 1 ? kGgufF32 : kGgufBf16);
    if (tensor.dims.size() == 1) {
      EXPECT_EQ(data_of(half_map, *narrow), data_of(wide_map, tensor));
      EXPECT_EQ(data_of(brain_map, *brain.find_tensor(tensor.name)), data_of(wide_map, tensor));
      continue;
    }
    const auto* exact = reinterpret_cast<const float*>(data_of(wide_map, tensor).data());
    const auto* rounded = reinterpret_cast<const F16*>(data_of(half_map, *narrow).data());
    const auto* brains = reinterpret_cast<const uint16_t*>(data_of(brain_map, *brain.find_tensor(tensor.name)).data());
    for (int64_t i = 0; i < tensor.bytes / 4; ++i) {
      ASSERT_NEAR(static_cast<float>(rounded[i]), exact[i], std::max(std::abs(exact[i]) * 0x1p-11, 0x1p-25))
          << tensor.name;
      // The type has 8 bits of significand, and is the upper half of an f32.
      ASSERT_NEAR(std::bit_cast<float>(uint32_t{brains[i]} << 16), exact[i], std::abs(exact[i]) * 0x1p-8)
          << tensor.name;
    }
  }
}

TEST(GgufModel, ValuesBeyondF16AreAnErrorThatNamesTheTensor) {
  const TempDir directory;
  const ExecResources exec = make_exec_resources(Device{}, 1);
  Model model = load_model(exec.context, fixture("llama_tied"), DType::f32);
  model.weights->value(model.weights->find("layers.1.mlp.down").index).data<float>()[5] = 65520;
  std::filesystem::create_directory(directory / "model");
  save_model(exec.context, model, directory / "model", {});
  GgufModelOptions options;
  options.dtype = DType::f16;
  const GgufModel gguf(directory / "model");
  EXPECT_LOAM_ERROR(gguf.write(exec.context, directory / "a.gguf", options), ErrorCode::kInvalidArgument,
                    (directory / "model").string() + ": tensor blk.1.ffn_down.weight: 1 of its");
  EXPECT_FALSE(std::filesystem::exists(directory / "a.gguf"));
  options.dtype = DType::bf16;
  gguf.write(exec.context, directory / "a.gguf", options);
}

TEST(GgufModel, RefusesWhatLlamaCppWouldComputeOtherwise) {
  const std::pair<const char*, const char*> cases[] = {{"mistral_window", "llama has no windows"},
                                                       {"qwen2_windows", "qwen2 has no windows"},
                                                       {"qwen3_yarn_bias", "rounded bounds"},
                                                       {"llama_yarn", "beta_fast 32"},
                                                       {"llama_untied_bias", "SiLU"},
                                                       {"gpt2_untied", "GELU"},
                                                       {"gpt_neox_serial", "needs biases"},
                                                       {"gemma2", "scales attention by 0.25, not 0.57735"},
                                                       {"smollm3_nope", "positions in every 4th layer"},
                                                       {"phi3_partial_window", "phi3 has no windows"}};
  for (const auto& [name, message] : cases) {
    EXPECT_LOAM_ERROR(GgufModel(fixture(name)), ErrorCode::kInvalidArgument, message);
    EXPECT_LOAM_ERROR(GgufModel(fixture(name)), ErrorCode::kInvalidArgument, fixture(name).string() + ": GGUF: ");
  }
  const TempDir directory;
  copy_changed("gemma2", Json::parse(R"({"query_pre_attn_scalar": 16, "tie_word_embeddings": false})"),
               directory / "a");
  EXPECT_LOAM_ERROR(GgufModel(directory / "a"), ErrorCode::kInvalidArgument, "gemma2 has the embedding for its head");
  const ModelFileConfig llama = read_model_config(fixture("llama_tied"));
  ModelConfig ntk = llama.config;
  check_gguf(gguf_form(*llama.family), ntk);
  ntk.rope_scaling.kind = RopeScalingKind::ntk;
  EXPECT_LOAM_ERROR(check_gguf(gguf_form(*llama.family), ntk), ErrorCode::kInvalidArgument, "scaled by ntk");
}

// llama.cpp's load_swa_pattern(): layer i has a window unless i % period is period - 1, or by a list. It knows the
// periods 2 (gemma2) and 6 (gemma3).
TEST(GgufModel, StatesPatternsOfWindowsOtherThanTheUsual) {
  const ModelFileConfig gemma = read_model_config(fixture("gemma2"));
  const GgufForm& form = gguf_form(*gemma.family);
  const auto stated = [&](std::vector<AttentionSpan> spans) -> std::optional<GgufField::Value> {
    ModelConfig config = gemma.config;
    config.layers = static_cast<int64_t>(spans.size());
    config.attention_spans = std::move(spans);
    for (const GgufField& field : gguf_fields(form, config)) {
      if (field.key == "gemma2.attention.sliding_window_pattern") return field.value;
    }
    return std::nullopt;
  };
  const AttentionSpan w = AttentionSpan::window, f = AttentionSpan::full;
  EXPECT_EQ(stated({w, f, w, f}), std::nullopt);
  EXPECT_EQ(stated({w, w, f, w, w, f, w}), GgufField::Value(3u));
  EXPECT_EQ(stated({w, w, w, w}), GgufField::Value(5u));
  EXPECT_EQ(stated({f, w, w, f}), GgufField::Value(std::vector<bool>{false, true, true, false}));
}

}  // namespace
}  // namespace loam
