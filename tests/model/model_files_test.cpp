#include "loam/model/model_files.h"

#include <cstring>
#include <thread>

#include "loam/base/philox.h"
#include "loam/model/weight_copy.h"
#include "tests/harness/cuda_mirror.h"
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
  ExecResources exec_ = testing::test_resources(1);
  Batch batch(const std::string& name) const {
    return batch_of(SafetensorsFile(fixture(name) / "expected.safetensors"));
  }
  std::vector<float> logits(const Path& directory, const std::string& batch_name, DType dtype = DType::f32) const {
    return logits_of(exec_.context, load_model(exec_.context, directory, dtype), batch(batch_name));
  }
  Model load(const Path& directory) const { return load_model(exec_.context, directory, DType::f32); }
};

std::string family_of(const std::string& name) {
  return Json::parse(read_file(fixture(name) / "config.json")).at("model_type").as_string();
}

// As its maker wrote it.
bool is_tied(const std::string& name) {
  const SafetensorsModel file(fixture(name));
  return !file.contains("lm_head.weight") && !file.contains("embed_out.weight");
}

TEST_F(ModelFiles, SavedModelHasTheSameTensorsAndLogits) {
  for (const std::string& name : kFixtures) {
    SCOPED_TRACE(name);
    const TempDir out;
    save_model(exec_.context, load(fixture(name)), out.path(), {});
    const SafetensorsModel before(fixture(name));  // one of them is in shards
    const SafetensorsFile after(out / "model.safetensors");
    EXPECT_EQ(after.metadata().at("format"), "pt");
    EXPECT_EQ(after.names().size(), before.names().size());
    for (const std::string& tensor : before.names()) {
      ASSERT_TRUE(after.contains(tensor)) << tensor;
      EXPECT_EQ(after.tensor(tensor).shape(), before.tensor(tensor).shape()) << tensor;
      EXPECT_EQ(floats(after.tensor(tensor)), floats(before.tensor(tensor))) << tensor;
    }
    EXPECT_EQ(logits(out.path(), name), logits(fixture(name), name));
    const Json config = Json::parse(read_file(out / "config.json"));
    EXPECT_EQ(config.at("tie_word_embeddings").as_bool(), is_tied(name));
    EXPECT_EQ(config.at("torch_dtype").as_string(), "float32");
    EXPECT_EQ(after.contains("lm_head.weight") || after.contains("embed_out.weight"), !is_tied(name));
  }
}

TEST_F(ModelFiles, TiedHeadIsOneTensor) {
  for (const std::string name : {"llama_tied", "gpt2_tied"}) {
    const std::string table = name == "llama_tied" ? "model.embed_tokens.weight" : "transformer.wte.weight";
    // A file may repeat the table; what is written then holds it once.
    const Changed repeated(
        name, [&](Tensors& t, Json&, Arena&) { t.emplace_back("lm_head.weight", tensor_named(t, table)); });
    const TempDir out;
    save_model(exec_.context, load(repeated.path()), out.path(), {});
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

// A tied model is written with one table, under the name that transformers expects, and says so; no tensor is empty.
TEST_F(ModelFiles, TiedModelsAreWrittenOnceInEveryForm) {
  for (const std::string& name : kFixtures) {
    for (const auto& [dtype, file_name, torch_name] : {std::tuple{DType::f32, "F32", "float32"},
                                                       {DType::bf16, "BF16", "bfloat16"},
                                                       {DType::f16, "F16", "float16"}}) {
      SCOPED_TRACE(name + " " + dtype_name(dtype));
      const bool tied = is_tied(name);
      const TempDir out;
      SaveModelOptions options;
      options.dtype = dtype;
      save_model(exec_.context, load_model(exec_.context, fixture(name), dtype), out.path(), options);
      // The header as it stands in the file, without the reader's help.
      const std::string bytes = read_file(out / "model.safetensors");
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), 8);
      const Json header = Json::parse(std::string_view(bytes).substr(8, length));
      const auto data_of = [&](const Json& entry) {
        const Json::Array& range = entry.at("data_offsets").as_array();
        const auto begin = static_cast<size_t>(range[0].as_int()), end = static_cast<size_t>(range[1].as_int());
        return std::string_view(bytes).substr(8 + length + begin, end - begin);
      };
      std::string_view table;
      for (const char* tensor : {"model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight"}) {
        if (const Json* entry = header.find(tensor)) table = data_of(*entry);
      }
      int tables = 0;
      for (const auto& [tensor, entry] : header.as_object()) {
        if (tensor == "__metadata__") continue;
        const std::string& type = entry.at("dtype").as_string();
        const bool vector = entry.at("shape").as_array().size() == 1;
        // Norms and biases stay f32 whatever the dtype.
        EXPECT_EQ(type, vector ? "F32" : file_name) << tensor;
        EXPECT_FALSE(data_of(entry).empty()) << tensor;
        tables += data_of(entry) == table;
      }
      EXPECT_EQ(tables, 1);
      EXPECT_EQ(!header.find("lm_head.weight") && !header.find("embed_out.weight"), tied);
      const Json config = Json::parse(read_file(out / "config.json"));
      EXPECT_EQ(config.at("tie_word_embeddings"), Json(tied));
      EXPECT_EQ(config.at("torch_dtype"), Json(torch_name));
      EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors.index.json"));
    }
  }
}

TEST_F(ModelFiles, IdsThatEndARun) {
  const auto ids_of = [&](const char* config_eos, const char* generation) {
    const Changed changed("llama_tied", [&](Tensors&, Json& config, Arena&) {
      config["bos_token_id"] = 1;
      config["eos_token_id"] = Json::parse(config_eos);
    });
    if (*generation) write_file_atomic(changed.path() / "generation_config.json", generation);
    return load(changed.path()).eos_ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids_of("2", ""), Ids{2});
  EXPECT_EQ(ids_of("[2, 7, 5]", ""), (Ids{2, 7, 5}));
  EXPECT_EQ(ids_of("null", ""), Ids{});
  // The generation's settings go first.
  EXPECT_EQ(ids_of("2", R"({"eos_token_id": [3, 4]})"), (Ids{3, 4}));
  EXPECT_EQ(ids_of("2", R"({"eos_token_id": 9, "temperature": 0.6})"), Ids{9});
  EXPECT_EQ(ids_of("2", R"({"temperature": 0.6})"), Ids{2});
  EXPECT_EQ(ids_of("2", R"({"eos_token_id": null})"), Ids{2});
  EXPECT_EQ(ids_of("[2, 32, -1, 4000000000]", ""), Ids{2});  // the vocabulary has 32
  for (const char* bad : {"[]", "{", R"({"eos_token_id": "</s>"})", R"({"eos_token_id": [2.5]})"}) {
    const std::string said = error_of(ErrorCode::kBadFormat, [&] { ids_of("2", bad); });
    EXPECT_NE(said.find("generation_config.json"), std::string::npos) << said;
  }

  const TempDir out;
  Model model = load(fixture("llama_tied"));
  for (const Ids& ids : {Ids{}, Ids{4}, Ids{4, 9}}) {
    model.eos_ids = ids;
    save_model(exec_.context, model, out.path(), {});
    EXPECT_EQ(load(out.path()).eos_ids, ids);
    const Json written = Json::parse(read_file(out / "generation_config.json"));
    EXPECT_EQ(written.at("eos_token_id").dump(), ids.empty() ? "null" : ids.size() == 1 ? "4" : "[4,9]");
    EXPECT_EQ(written.at("eos_token_id"), Json::parse(read_file(out / "config.json")).at("eos_token_id"));
  }
}

// One model, several threads, from its first pass on.
TEST_F(ModelFiles, OneModelServesManyThreads) {
  const Model model = load(fixture("llama_tied"));
  const std::vector<float> expected = logits(fixture("llama_tied"), "llama_tied");
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (auto& result : found) {
    threads.emplace_back([&] {
      const ExecResources own = testing::test_resources(1);
      result = logits_of(own.context, model, batch("llama_tied"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : found) EXPECT_EQ(result, expected);
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
  save_model(exec_.context, load(fixture(name)), out.path(), options);
  const SafetensorsFile exact(fixture(name) / "model.safetensors"), rounded(out / "model.safetensors");
  EXPECT_EQ(rounded.tensor("transformer.wte.weight").dtype(), DType::bf16);
  EXPECT_EQ(rounded.tensor("transformer.ln_f.weight").dtype(), DType::f32);
  const std::vector<float> want = floats(exact.tensor("transformer.h.1.mlp.c_fc.weight"));
  const std::vector<float> have = floats(rounded.tensor("transformer.h.1.mlp.c_fc.weight"));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(have[i], static_cast<float>(Bf16(want[i])));
  EXPECT_EQ(Json::parse(read_file(out / "config.json")).at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(logits(out.path(), name, DType::bf16), logits(fixture(name), name, DType::bf16));
}

// Each tensor is shown as it goes to the file, where a large weight may have become infinite in bf16.
TEST_F(ModelFiles, ValuesThatAreNotFiniteCanBeCounted) {
  const Changed bad("gpt2_tied", [](Tensors& t, Json&, Arena& arena) {
    Tensor& table = tensor_named(t, "transformer.wte.weight");
    std::vector<float> values = floats(table);
    values[1] = -NAN, values[7] = NAN, values[8] = INFINITY, values[9] = -INFINITY, values[10] = 3.4e38f;
    table = Tensor::from<float>(arena, table.shape(), values);
  });
  const Model model = load(bad.path());
  for (const auto& [dtype, infinite] : {std::pair{DType::f32, 2}, std::pair{DType::bf16, 3}}) {
    std::map<std::string, std::pair<int64_t, int64_t>> found;
    const TempDir out;
    SaveModelOptions options;
    options.dtype = dtype;
    options.on_tensor = [&](const std::string& name, const Tensor& t) {
      const NonFinite count = count_non_finite(t, 2);
      found[name] = {count.nan, count.infinite};
    };
    save_model(exec_.context, model, out.path(), options);
    EXPECT_EQ(found.size(), SafetensorsFile(out / "model.safetensors").names().size());
    for (const auto& [name, counts] : found) {
      const bool table = name == "transformer.wte.weight";
      EXPECT_EQ(counts, (table ? std::pair<int64_t, int64_t>{2, infinite} : std::pair<int64_t, int64_t>{})) << name;
    }
  }
}

TEST_F(ModelFiles, ReadsHalfPrecision) {
  const Changed half("llama_tied", [](Tensors& t, Json&, Arena& arena) {
    Tensor& norm = tensor_named(t, "model.norm.weight");
    norm = Tensor::empty(arena, norm.shape(), DType::f16);
    for (int64_t i = 0; i < norm.numel(); ++i) norm.data<F16>()[i] = F16(1.5f);
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
  options.eos_ids = std::vector<int32_t>{6, 2};
  save_model(
      exec_.context, model, [&](int32_t index) { return masters[static_cast<size_t>(index)]; }, out.path(), options);
  const Model read = load(out.path());
  EXPECT_EQ(read.bos_id, 5);
  EXPECT_EQ(read.eos_ids, (std::vector<int32_t>{6, 2}));
  for (int32_t i = 0; i < read.weights->size(); ++i)
    EXPECT_EQ(floats(read.weights->value(i)), floats(masters[static_cast<size_t>(i)]));
  options.family = "gpt2";
  EXPECT_LOAM_ERROR(save_model(exec_.context, model, out.path(), options), ErrorCode::kInvalidArgument,
                    "cannot be written as gpt2");
}

// What transformers does with max_shard_size: files that hold no more, and an index of them.
TEST_F(ModelFiles, LargeModelsAreWrittenInShards) {
  for (const std::string name : {"llama_tied", "gemma2", "gpt_neox_serial"}) {
    SCOPED_TRACE(name);
    const TempDir out;
    SaveModelOptions options;
    options.shard_bytes = 3000;
    save_model(exec_.context, load(fixture(name)), out.path(), options);
    EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors"));
    const Json index = Json::parse(read_file(out / "model.safetensors.index.json"));
    const SafetensorsModel before(fixture(name)), after(out.path());
    EXPECT_EQ(index.at("weight_map").as_object().size(), before.names().size());
    int64_t total = 0;
    std::map<std::string, int64_t> bytes;
    for (const auto& [tensor, file] : index.at("weight_map").as_object()) {
      EXPECT_EQ(floats(after.tensor(tensor)), floats(before.tensor(tensor))) << tensor;
      total += after.tensor(tensor).bytes();
      bytes[file.as_string()] += after.tensor(tensor).bytes();
    }
    EXPECT_EQ(index.at("metadata").at("total_size").as_int(), total);
    EXPECT_GT(bytes.size(), 2u);
    EXPECT_EQ(bytes.begin()->first, fmt::format("model-00001-of-{:05}.safetensors", bytes.size()));
    int64_t largest = 0;
    for (const std::string& tensor : before.names()) largest = std::max(largest, before.tensor(tensor).bytes());
    for (const auto& [file, size] : bytes) EXPECT_LE(size, std::max<int64_t>(3000, largest)) << file;
    EXPECT_EQ(logits(out.path(), name), logits(fixture(name), name));
  }
}

// A model that rotates neighbours is written with its rows in the order of files, with everything that goes with them:
// biases, the weights of QK-norm, fused projections, heads of which only a part is rotated.
TEST_F(ModelFiles, NeighbouringPairsAreWrittenAsHalves) {
  for (const std::string name : {"llama_untied_bias", "qwen2_tied", "qwen3_yarn_bias", "olmo2", "phi3_partial_window",
                                 "gpt_neox_parallel", "gpt_neox_serial", "smollm3_nope"}) {
    SCOPED_TRACE(name);
    ModelConfig config = load(fixture(name)).config();
    config.rope_pairs = RopePairs::interleaved;
    Model model = make_model(exec_.context, config, DType::f32, false);
    for (int32_t i = 0; i < model.weights->size(); ++i) {  // each element its own, vectors too
      const PhiloxStream stream{3, static_cast<uint64_t>(i)};
      const std::span<float> values = model.weights->value(i).span<float>();
      for (size_t k = 0; k < values.size(); ++k) values[k] = 0.3f * static_cast<float>(stream.normal(k));
    }
    model.family = family_of(name);
    const TempDir out;
    save_model(exec_.context, model, out.path(), {});
    const Model read = load(out.path());
    EXPECT_EQ(read.config().rope_pairs, RopePairs::half);
    const Batch b = batch(name);
    const auto before = logits_of(exec_.context, model, b), after = logits_of(exec_.context, read, b);
    EXPECT_LE(relative_error(after, before), 1e-6);
  }
}

// What no other family holds is written in loam's own form and read back to the bit; so is every model, if that form is
// asked for.
TEST_F(ModelFiles, OwnFormHoldsEveryConfiguration) {
  for (const std::string& name : kFixtures) {
    SCOPED_TRACE(name);
    const TempDir out;
    SaveModelOptions options;
    options.family = "loam";
    save_model(exec_.context, load(fixture(name)), out.path(), options);
    EXPECT_EQ(load(out.path()).family, "loam");
    EXPECT_EQ(config_to_json(load(out.path()).config()), config_to_json(load(fixture(name)).config()));
    EXPECT_EQ(logits(out.path(), name), logits(fixture(name), name));
  }
}

std::vector<float> scalars_of(const ExecContext& exec, const Model& model, const Batch& batch) {
  const Context ctx(exec);
  FullSequence sequence(batch.positions, batch.first_key);
  return floats(model.transformer->scalars(ctx, model.transformer->hidden(ctx, batch.ids, sequence)).value);
}

// tests/fixtures/make_classifier_fixtures.py: what transformers' classes of one label score, and their own files.
TEST_F(ModelFiles, ScoresOfClassifiersEqualTransformers) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path(LOAM_SOURCE_DIR) / "tests/fixtures/classifiers")) {
    SCOPED_TRACE(entry.path().filename().string());
    const SafetensorsFile expected(entry.path() / "expected.safetensors"), before(entry.path() / "model.safetensors");
    const Batch b{expected.tensor("ids"), {}, expected.tensor("positions"), expected.tensor("first_key")};
    const Model model = load(entry.path());
    EXPECT_LE(relative_error(scalars_of(exec_.context, model, b), floats(expected.tensor("scores"))), 1e-5);
    const TempDir out;
    save_model(exec_.context, model, out.path(), {});
    const SafetensorsFile after(out / "model.safetensors");
    EXPECT_EQ(after.names().size(), before.names().size());
    for (const std::string& name : before.names()) EXPECT_EQ(floats(after.tensor(name)), floats(before.tensor(name)));
    const auto config = [](const Path& directory) { return Json::parse(read_file(directory / "config.json")); };
    EXPECT_EQ(config(out.path()).at("architectures"), config(entry.path()).at("architectures"));
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

TEST_F(ModelFiles, ScalarHeadsAreWrittenAsClassifiersOfOneLabel) {
  for (const std::string name : {"llama_tied", "gpt2_tied", "gemma2", "gemma3", "qwen3_tied", "gpt_neox_parallel",
                                 "olmo2", "phi3_partial_window", "smollm3_nope", "mistral_window"}) {
    SCOPED_TRACE(name);
    ModelConfig config = load(fixture(name)).config();
    config.head = HeadKind::scalar;
    config.logit_softcap = 0;
    Model model = make_model(exec_.context, config, DType::f32, false);
    model.weights->initialize(4);
    model.family = family_of(name);
    const TempDir out;
    save_model(exec_.context, model, out.path(), {});
    const SafetensorsFile file(out / "model.safetensors");
    EXPECT_EQ(file.tensor("score.weight").shape(), (Shape{1, config.dim}));
    EXPECT_FALSE(file.contains("lm_head.weight") || file.contains("embed_out.weight"));
    const Json json = Json::parse(read_file(out / "config.json"));
    const std::string& architecture = json.at("architectures").as_array()[0].as_string();
    EXPECT_TRUE(architecture.ends_with("ForSequenceClassification")) << architecture;
    EXPECT_EQ(architecture.find("Text") != std::string::npos, name == "gemma3");  // Gemma 3's other class sees pictures
    EXPECT_EQ(json.at("id2label").as_object().size(), 1u);
    const Model read = load(out.path());
    EXPECT_EQ(read.config().head, HeadKind::scalar);
    const Batch b = batch(name);
    EXPECT_EQ(scalars_of(exec_.context, read, b), scalars_of(exec_.context, model, b));
    EXPECT_LOAM_ERROR(logits_of(exec_.context, read, b), ErrorCode::kInvalidArgument, "scalar head");
  }
}

}  // namespace
}  // namespace loam
