#include "loam/model/model_files.h"

#include "loam/model/weight_copy.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using namespace loam::testing;

using Tensors = std::vector<std::pair<std::string, Tensor>>;

Tensors tensors_of(const std::string& name) {
  const SafetensorsFile file(fixture(name) / "model.safetensors");
  Tensors tensors;
  for (const std::string& tensor : file.names()) tensors.emplace_back(tensor, file.tensor(tensor));
  return tensors;
}

Tensor& tensor_named(Tensors& tensors, const std::string& name) {
  for (auto& [known, tensor] : tensors) {
    if (known == name) return tensor;
  }
  throw std::out_of_range(name);
}

// A copy of a fixture with changes.
struct Changed {
  TempDir directory;
  Changed(const std::string& name, const std::function<void(Tensors&, Json&, Arena&)>& change) {
    Tensors tensors = tensors_of(name);
    Json config = Json::parse(read_file(fixture(name) / "config.json"));
    const auto arena = Arena::create(Device{});
    change(tensors, config, *arena);
    write_safetensors(directory / "model.safetensors", tensors, {{"format", "pt"}});
    write_file_atomic(directory / "config.json", config.dump());
  }
  const Path& path() const { return directory.path(); }
};

class ModelFiles : public ::testing::Test {
 protected:
  ExecResources exec_ = make_exec_resources(Device{}, 1);
  Batch batch(const std::string& name) const {
    return batch_of(SafetensorsFile(fixture(name) / "expected.safetensors"));
  }
  std::vector<float> logits(const Path& directory, const std::string& batch_name, DType dtype = DType::f32) const {
    return logits_of(exec_.context, load_model(exec_.context, directory, dtype), batch(batch_name));
  }
  Model load(const Path& directory) const { return load_model(exec_.context, directory, DType::f32); }
};

TEST_F(ModelFiles, SavedModelHasTheSameTensorsAndLogits) {
  for (const std::string& name : kFixtures) {
    SCOPED_TRACE(name);
    const TempDir out;
    save_model(load(fixture(name)), out.path(), {});
    const SafetensorsFile before(fixture(name) / "model.safetensors"), after(out / "model.safetensors");
    EXPECT_EQ(after.metadata().at("format"), "pt");
    EXPECT_EQ(after.names().size(), before.names().size());
    for (const std::string& tensor : before.names()) {
      ASSERT_TRUE(after.contains(tensor)) << tensor;
      EXPECT_EQ(after.tensor(tensor).shape(), before.tensor(tensor).shape()) << tensor;
      EXPECT_EQ(floats(after.tensor(tensor)), floats(before.tensor(tensor))) << tensor;
    }
    EXPECT_EQ(logits(out.path(), name), logits(fixture(name), name));
    const Json config = Json::parse(read_file(out / "config.json"));
    EXPECT_EQ(config.at("tie_word_embeddings").as_bool(), name.find("untied") == std::string::npos);
    EXPECT_EQ(config.at("torch_dtype").as_string(), "float32");
    EXPECT_EQ(after.contains("lm_head.weight"), name.find("untied") != std::string::npos);
  }
}

TEST_F(ModelFiles, TiedHeadIsOneTensor) {
  for (const std::string name : {"llama_tied", "gpt2_tied"}) {
    const std::string table = name == "llama_tied" ? "model.embed_tokens.weight" : "transformer.wte.weight";
    // A file may repeat the table; what is written then holds it once.
    const Changed repeated(
        name, [&](Tensors& t, Json&, Arena&) { t.emplace_back("lm_head.weight", tensor_named(t, table)); });
    const TempDir out;
    save_model(load(repeated.path()), out.path(), {});
    EXPECT_FALSE(SafetensorsFile(out / "model.safetensors").contains("lm_head.weight"));
    EXPECT_EQ(logits(out.path(), name), logits(fixture(name), name));

    const Changed other(name, [&](Tensors& t, Json&, Arena& arena) {
      std::vector<float> values = floats(tensor_named(t, table));
      values.back() += 1;
      t.emplace_back("lm_head.weight", Tensor::from<float>(arena, tensor_named(t, table).shape(), values));
    });
    EXPECT_LOAM_ERROR(load(other.path()), ErrorCode::kBadFormat, "lm_head.weight differs from " + table);

    const Changed headless(name, [&](Tensors&, Json& config, Arena&) { config["tie_word_embeddings"] = false; });
    EXPECT_LOAM_ERROR(load(headless.path()), ErrorCode::kBadFormat, "1 tensors are missing: lm_head.weight");
  }
}

TEST_F(ModelFiles, MissingAndLeftOverTensorsAreOneError) {
  const Changed changed("llama_tied", [](Tensors& t, Json&, Arena&) {
    t[3].first = "surprise";
    t.erase(t.begin() + 5);
  });
  const std::string message = error_of(ErrorCode::kBadFormat, [&] { load(changed.path()); });
  EXPECT_NE(message.find("2 tensors are missing: model."), std::string::npos) << message;
  EXPECT_NE(message.find("1 tensors belong nowhere: surprise"), std::string::npos) << message;
  const Changed shaped("gpt2_tied", [](Tensors&, Json& config, Arena&) { config["n_positions"] = 17; });
  EXPECT_LOAM_ERROR(load(shaped.path()), ErrorCode::kBadFormat,
                    "transformer.wpe.weight has shape [16, 16], the configuration makes [17, 16]");
  const Changed typed("llama_tied", [](Tensors& t, Json&, Arena& arena) {
    Tensor& norm = tensor_named(t, "model.norm.weight");
    norm = Tensor::zeros(arena, norm.shape(), DType::i32);
  });
  EXPECT_LOAM_ERROR(load(typed.path()), ErrorCode::kBadFormat, "model.norm.weight has dtype i32");
}

// Files of the bare model lack the prefix; old ones hold buffers that are no weights.
TEST_F(ModelFiles, OlderFormsOfFiles) {
  const Changed gpt2("gpt2_tied", [](Tensors& t, Json&, Arena& arena) {
    for (auto& [name, tensor] : t) name = name.substr(std::string("transformer.").size());
    t.emplace_back("h.0.attn.bias", Tensor::zeros(arena, {1, 1, 16, 16}, DType::u8));
    t.emplace_back("h.1.attn.masked_bias", Tensor::zeros(arena, {1}, DType::f32));
  });
  EXPECT_EQ(logits(gpt2.path(), "gpt2_tied"), logits(fixture("gpt2_tied"), "gpt2_tied"));
  const Changed llama("llama_tied", [](Tensors& t, Json& config, Arena& arena) {
    t.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", Tensor::zeros(arena, {4}, DType::f32));
    config["rope_theta"] = 500.0;
    config["rope_parameters"] = nullptr;
  });
  EXPECT_EQ(logits(llama.path(), "llama_tied"), logits(fixture("llama_tied"), "llama_tied"));
}

TEST_F(ModelFiles, ShardsWithAnIndex) {
  const TempDir out;
  Tensors tensors = tensors_of("llama_untied_bias");
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  const Tensors first(tensors.begin(), middle), second(middle, tensors.end());
  Json map = Json::object();
  for (const auto& [name, tensor] : first) map[name] = "model-00001-of-00002.safetensors";
  for (const auto& [name, tensor] : second) map[name] = "model-00002-of-00002.safetensors";
  write_safetensors(out / "model-00001-of-00002.safetensors", first);
  write_safetensors(out / "model-00002-of-00002.safetensors", second);
  write_file_atomic(out / "model.safetensors.index.json", Json(Json::Object{{"weight_map", map}}).dump());
  write_file_atomic(out / "config.json", read_file(fixture("llama_untied_bias") / "config.json"));
  EXPECT_EQ(logits(out.path(), "llama_untied_bias"), logits(fixture("llama_untied_bias"), "llama_untied_bias"));
}

// bf16 files load exactly, and f32 weights are rounded to nearest on the way into either a bf16 file or a bf16 model.
TEST_F(ModelFiles, DtypesConvertByRounding) {
  const std::string name = "gpt2_untied";
  const TempDir out;
  SaveModelOptions options;
  options.dtype = DType::bf16;
  save_model(load(fixture(name)), out.path(), options);
  const SafetensorsFile exact(fixture(name) / "model.safetensors"), rounded(out / "model.safetensors");
  EXPECT_EQ(rounded.tensor("transformer.wte.weight").dtype(), DType::bf16);
  EXPECT_EQ(rounded.tensor("transformer.ln_f.weight").dtype(), DType::f32);
  const std::vector<float> want = floats(exact.tensor("transformer.h.1.mlp.c_fc.weight"));
  const std::vector<float> have = floats(rounded.tensor("transformer.h.1.mlp.c_fc.weight"));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(have[i], static_cast<float>(Bf16(want[i])));
  EXPECT_EQ(Json::parse(read_file(out / "config.json")).at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(logits(out.path(), name, DType::bf16), logits(fixture(name), name, DType::bf16));
}

TEST_F(ModelFiles, ReadsHalfPrecision) {
  // IEEE 754-2019, binary16: sign, 5 bits of exponent (bias 15), 10 of fraction.
  const std::vector<std::pair<uint16_t, float>> known{
      {0x3C00, 1.0f},          {0xC000, -2.0f},        {0x7BFF, 65504.0f}, {0x0400, 0x1p-14f}, {0x0001, 0x1p-24f},
      {0x83FF, -0x1.FF8p-15f}, {0x3555, 0.333251953f}, {0x7C00, INFINITY}, {0x0000, 0.0f}};
  for (const auto& [bits, value] : known) EXPECT_EQ(half_to_float(bits), value) << bits;
  EXPECT_TRUE(std::isnan(half_to_float(0x7E00)));
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
  const Changed half("llama_tied", [](Tensors& t, Json&, Arena& arena) {
    Tensor& norm = tensor_named(t, "model.norm.weight");
    norm = Tensor::empty(arena, norm.shape(), DType::f16);
    for (int64_t i = 0; i < norm.numel(); ++i) static_cast<uint16_t*>(norm.view().data)[i] = 0x3E00;  // 1.5
  });
  const Model model = load(half.path());
  for (float v : floats(model.weights->find("norm.weight").value())) EXPECT_EQ(v, 1.5f);
}

// Whatever a configuration claims, the error comes before memory is taken for it.
TEST_F(ModelFiles, HostileConfigurations) {
  const std::vector<std::pair<std::string, std::string>> cases{{"hidden_size", "-24"},
                                                               {"hidden_size", "9223372036854775807"},
                                                               {"hidden_size", "1048576"},
                                                               {"hidden_size", "0"},
                                                               {"num_hidden_layers", "-1"},
                                                               {"num_hidden_layers", "4000"},
                                                               {"num_hidden_layers", "1e300"},
                                                               {"vocab_size", "-32"},
                                                               {"vocab_size", "16777216"},
                                                               {"vocab_size", "0"},
                                                               {"vocab_size", "\"many\""},
                                                               {"num_attention_heads", "0"},
                                                               {"num_attention_heads", "5"},
                                                               {"num_key_value_heads", "2"},
                                                               {"head_dim", "7"},
                                                               {"intermediate_size", "-9"},
                                                               {"intermediate_size", "1000000"},
                                                               {"rms_norm_eps", "-1"},
                                                               {"rms_norm_eps", "\"x\""},
                                                               {"model_type", "\"mamba\""},
                                                               {"model_type", "3"},
                                                               {"model_type", "null"}};
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(key + " " + value);
    const Changed changed("llama_tied",
                          [&, &k = key, &v = value](Tensors&, Json& config, Arena&) { config[k] = Json::parse(v); });
    const auto arena_before = exec_.arena->stats().total_peak;
    error_of(ErrorCode::kBadFormat, [&] { load(changed.path()); });
    EXPECT_EQ(exec_.arena->stats().total_peak, arena_before);
  }
  const TempDir odd;
  write_file_atomic(odd / "config.json", "[1, 2]");
  error_of(ErrorCode::kBadFormat, [&] { load(odd.path()); });
  error_of(ErrorCode::kNotFound, [&] { load(odd / "nothing"); });
}

TEST_F(ModelFiles, WeightsMayComeFromElsewhere) {
  const TempDir out;
  const Model model = load_model(exec_.context, fixture("llama_tied"), DType::bf16);
  std::vector<Tensor> masters;
  for (int32_t i = 0; i < model.weights->size(); ++i) {
    masters.push_back(Tensor::zeros(*exec_.arena, model.weights->spec(i).shape, DType::f32));
    for (float& v : masters.back().span<float>()) v = 0.1f + static_cast<float>(i);
  }
  SaveModelOptions options;
  options.bos_id = 5;
  options.eos_id = 6;
  save_model(
      model, [&](int32_t index) { return masters[static_cast<size_t>(index)]; }, out.path(), options);
  const Model read = load(out.path());
  EXPECT_EQ(read.bos_id, 5);
  EXPECT_EQ(read.eos_id, 6);
  for (int32_t i = 0; i < read.weights->size(); ++i)
    EXPECT_EQ(floats(read.weights->value(i)), floats(masters[static_cast<size_t>(i)]));
  options.family = "gpt2";
  EXPECT_LOAM_ERROR(save_model(model, out.path(), options), ErrorCode::kInvalidArgument, "cannot be written as gpt2");
}

}  // namespace
}  // namespace loam
