#include "loam/model/families/family.h"

#include "tests/harness/expect_error.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using namespace loam::testing;

Json llama_json() {
  return Json::parse(R"({"model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":48,
      "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128})");
}
Json gpt2_json() {
  return Json::parse(R"({"model_type":"gpt2","vocab_size":64,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":128})");
}

TEST(Families, DefaultsAreThoseOfTheLibrary) {
  const ModelConfig llama = kLlamaFamily.read(llama_json());
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tied_embeddings);
  EXPECT_EQ(llama.activation, ActivationKind::silu);
  EXPECT_EQ(llama.rope_pairs, RopePairs::half);
  EXPECT_EQ(derive(llama).head_dim, 8);
  const ModelConfig gpt2 = kGpt2Family.read(gpt2_json());
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_EQ(gpt2.activation, ActivationKind::gelu_tanh);
  EXPECT_EQ(derive(gpt2).ffn_dim, 128);
}

TEST(Families, ReadsBothSpellingsOfRotaryPositions) {
  Json four = llama_json();
  four["rope_theta"] = 500000.0;
  four["rope_scaling"] = nullptr;
  EXPECT_EQ(kLlamaFamily.read(four).rope_theta, 500000);
  Json five = llama_json();
  five["rope_parameters"] = Json::parse(R"({"rope_type":"default","rope_theta":1000000})");
  EXPECT_EQ(kLlamaFamily.read(five).rope_theta, 1000000);
}

TEST(Families, StatementsOfTheRotaryBaseMustAgree) {
  Json json = llama_json();
  json["rope_theta"] = 500000;
  json["rope_parameters"] = Json::parse(R"({"rope_type":"default","rope_theta":500000.0})");
  EXPECT_EQ(kLlamaFamily.read(json).rope_theta, 500000);
  json["rope_theta"] = 10000.0;
  EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat,
                    "\"rope_theta\" is 10000, but \"rope_parameters.rope_theta\" is 500000");
  json["rope_theta"] = nullptr;
  json["rope_scaling"] = Json::parse(R"({"rope_theta":7.0})");
  EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat,
                    "\"rope_scaling\" and \"rope_parameters\" do not say the same");
  // Of two objects transformers takes the first, and then the family's own base.
  json["rope_scaling"] = Json::parse(R"({"type":"yarn","factor":2.0,"original_max_position_embeddings":64})");
  EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat, "do not say the same");
  json["rope_parameters"] =
      Json::parse(R"({"rope_type":"yarn","rope_theta":9.0,"factor":2.0,"original_max_position_embeddings":64})");
  EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat, "do not say the same");
  json["rope_theta"] = 9.0;
  EXPECT_EQ(kLlamaFamily.read(json).rope_theta, 9);
}

TEST(Families, RefusesWhatItCannotCompute) {
  struct Refused {
    std::string key, value, named = "";  // what the message names: the key unless stated
  };
  const std::vector<Refused> llama_cases{
      {"rope_scaling", R"({"rope_type":"llama3","factor":8.0})", "low_freq_factor"},
      {"rope_scaling", R"({"type":"linear"})", "factor"},
      {"rope_scaling", R"({"type":"linear","factor":-2.0})", "factor"},
      {"rope_scaling", R"({"type":"linear","factor":2.0,"beta_fast":3})", "beta_fast"},
      {"rope_scaling", R"({"type":"longrope","long_factor":[1],"short_factor":3})", "short_factor"},
      {"rope_scaling", R"({"type":"proportional","factor":2.0})"},
      {"rope_scaling", R"({"factor":2.0})", "factor"},
      {"rope_scaling", R"({"low_freq_factor":1.0})", "low_freq_factor"},
      {"rope_scaling", "3"},
      {"rope_scaling", R"({"type":"yarn","factor":0})", "factor"},
      {"rope_scaling", R"({"type":"yarn","factor":2.0,"attention_factor":0.0})", "attention_factor"},
      {"rope_parameters", R"({"rope_type":"yarn","rope_theta":10000.0,"beta_slow":-1})", "beta_slow"},
      {"rope_parameters", R"({"rope_type":"default","partial_rotary_factor":0.5})", "partial_rotary_factor"},
      {"is_causal", "false"},
      {"num_hidden_layers", "4000000000000000"},
      {"head_dim", "9223372036854775807"},
      {"rope_parameters", R"({"full_attention":{"rope_type":"default","rope_theta":1e4}})", "full_attention"},
      {"rope_parameters", R"({"rope_theta":"big"})", "rope_theta"},
      {"partial_rotary_factor", "0.5"},
      {"sliding_window", "4096"},
      {"layer_types", R"(["sliding_attention","full_attention"])"},
      {"quantization_config", R"({"bits":4})"},
      {"final_logit_softcapping", "30.0"},
      {"hidden_act", "\"mish\""},
      {"hidden_act", "3"},
      {"hidden_size", "\"large\""},
      {"attention_bias", "1"},
      {"vocab_size", "null"},
  };
  for (const auto& [key, value, named] : llama_cases) {
    SCOPED_TRACE(key + " " + value);
    Json json = llama_json();
    json[key] = Json::parse(value);
    EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat, named.empty() ? key : named);
  }
  const std::vector<std::pair<std::string, std::string>> gpt2_cases{{"scale_attn_weights", "false"},
                                                                    {"scale_attn_by_inverse_layer_idx", "true"},
                                                                    {"add_cross_attention", "true"},
                                                                    {"activation_function", "\"tanh\""},
                                                                    {"n_layer", "2.5"}};
  for (const auto& [key, value] : gpt2_cases) {
    Json json = gpt2_json();
    json[key] = Json::parse(value);
    EXPECT_LOAM_ERROR(kGpt2Family.read(json), ErrorCode::kBadFormat, key);
  }
}

TEST(Families, StatedDtypesAreKnownOnesAndOne) {
  Json json = llama_json();
  for (const char* known : {"float32", "bfloat16", "float16", "float64", "auto", "torch.bfloat16"}) {
    json["torch_dtype"] = known;
    kLlamaFamily.read(json);
  }
  json["dtype"] = "bfloat16";
  kLlamaFamily.read(json);
  json["dtype"] = "float16";
  EXPECT_LOAM_ERROR(kLlamaFamily.read(json), ErrorCode::kBadFormat,
                    "\"torch_dtype\" is bfloat16, but \"dtype\" is float16");
  for (const char* unknown : {"\"bf17\"", "\"\"", "16", "[]", "\"float8_e4m3fn\""}) {
    Json one = gpt2_json();
    one["torch_dtype"] = Json::parse(unknown);
    EXPECT_LOAM_ERROR(kGpt2Family.read(one), ErrorCode::kBadFormat, "\"torch_dtype\"");
  }
}

TEST(Families, LayersOfSmolLm3WithoutPositionsAreListedByZeroAndOne) {
  const Json json = Json::parse(read_file(fixture("smollm3_nope") / "config.json"));  // of 3 layers
  const auto read = [&](const char* list) {
    Json changed = json;
    changed["no_rope_layers"] = Json::parse(list);
    return derive(kSmolLm3Family.read(changed)).layer_positions;
  };
  EXPECT_EQ(read("[0, 1, 1]"), (std::vector{PositionKind::none, PositionKind::rope, PositionKind::rope}));
  for (const char* wrong : {"[1, 0]", "[1, 0, 1, 1]", "[]", "[1, 2, 1]", "[1, -1, 1]", "[1, \"0\", 1]", "[1, null, 1]",
                            "[true, false, true]", "3", "{}"}) {
    EXPECT_LOAM_ERROR(read(wrong), ErrorCode::kBadFormat, "no_rope_layers");
  }
}

TEST(Families, WarnsOfKeysThatNobodyKnows) {
  Json json = llama_json();
  json["mystery_gate"] = 7;
  json["quiet"] = nullptr;
  ::testing::internal::CaptureStderr();
  kLlamaFamily.read(json);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("\"mystery_gate\" is not known"), std::string::npos) << said;
  EXPECT_EQ(said.find("quiet"), std::string::npos);
  ::testing::internal::CaptureStderr();
  for (const std::string& name : kFixtures) {
    const Json written = Json::parse(read_file(fixture(name) / "config.json"));
    family_named(written.at("model_type").as_string()).read(written);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// The files of Phi-3 name the code of its makers, which transformers has as its own.
TEST(Families, CodeThatAFileNamesIsNotRun) {
  Json phi3 = Json::parse(read_file(fixture("phi3_partial_window") / "config.json")), llama = llama_json();
  phi3["auto_map"] = llama["auto_map"] = Json::parse(R"({"AutoConfig":"configuration_phi3.Phi3Config"})");
  ::testing::internal::CaptureStderr();
  kPhi3Family.read(phi3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  kLlamaFamily.read(llama);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("\"auto_map\" names code that is not run"),
            std::string::npos);
}

TEST(Families, ActivationsByTable) {
  const std::vector<std::pair<std::string, ActivationKind>> names{{"silu", ActivationKind::silu},
                                                                  {"swish", ActivationKind::silu},
                                                                  {"gelu", ActivationKind::gelu},
                                                                  {"gelu_new", ActivationKind::gelu_tanh},
                                                                  {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
                                                                  {"gelu_fast", ActivationKind::gelu_tanh},
                                                                  {"relu", ActivationKind::relu},
                                                                  {"relu2", ActivationKind::relu_squared}};
  for (const auto& [name, kind] : names) {
    Json json = llama_json();
    json["hidden_act"] = name;
    EXPECT_EQ(kLlamaFamily.read(json).activation, kind) << name;
  }
}

TEST(Families, WrittenConfigurationReadsBackEqual) {
  for (const std::string& name : kFixtures) {
    const Json json = Json::parse(read_file(fixture(name) / "config.json"));
    const Family& family = family_named(json.at("model_type").as_string());
    const ModelConfig config = derive(family.read(json));
    EXPECT_TRUE(can_hold(family, config)) << name;
    EXPECT_EQ(family_for(config).name, family.name) << name;
    EXPECT_EQ(config_to_json(derive(family.read(family.write(config)))), config_to_json(config)) << name;
  }
}

// Whatever a stranger's file says, an error is fit for a terminal.
TEST(Families, ErrorsHoldNoControlCharacters) {
  const std::string evil = "a\x1b[31m\xff\xc2\x9b\n";
  const auto said = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::vector<std::string> messages{said([&] { family_named(evil); })};
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"hidden_act", evil},
           {"torch_dtype", evil},
           {"vocab_size", evil},
           {"is_causal", evil},
           {"rope_scaling", Json(Json::Object{{"type", evil}})},
           {"rope_scaling", Json(Json::Object{{"type", evil}, {"strange", 1.0}})},
           {"rope_scaling", Json(Json::Object{{"type", "linear"}, {"factor", 2.0}, {evil, 1.0}})}}) {
    Json json = llama_json();
    json[key] = value;
    messages.push_back(said([&] { kLlamaFamily.read(json); }));
  }
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("[31m"), std::string::npos) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find('\xff'), std::string::npos) << message;
    EXPECT_EQ(message.find("\xc2\x9b"), std::string::npos) << message;
  }
}

TEST(Families, SaysWhichThereAre) {
  EXPECT_LOAM_ERROR(family_named("mamba"), ErrorCode::kNotFound, "llama, mistral");
  ModelConfig mixed;
  mixed.norm = NormKind::layer;  // with rotary positions: no family but loam's own
  EXPECT_EQ(&family_for(derive(mixed)), &kLoamFamily);
}

TEST(Families, AWindowSeesAtLeastItsOwnToken) {
  for (const std::string name :
       {"mistral_window", "phi3_partial_window", "qwen2_windows", "smollm3_nope_window", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    Json json = Json::parse(read_file(fixture(name) / "config.json"));
    const Family& family = family_named(json.at("model_type").as_string());
    EXPECT_GT(derive(family.read(json)).window, 0);
    for (const int64_t none : {0, -4}) {
      json["sliding_window"] = none;
      EXPECT_LOAM_ERROR(family.read(json), ErrorCode::kBadFormat, fmt::format("\"sliding_window\" is {}", none));
    }
    if (name == "qwen2_windows" || name == "smollm3_nope_window") {  // not looked at
      json["use_sliding_window"] = false;
      json["layer_types"] = nullptr;
      EXPECT_EQ(derive(family.read(json)).window, 0);
    }
  }
}

// GPT-NeoX has names of its own, and transformers looks at no other.
TEST(Families, PositionsOfGptNeoxUnderOtherNamesAreRefused) {
  const Json json = Json::parse(read_file(fixture("gpt_neox_parallel") / "config.json"));
  for (const auto& [own, other] :
       {std::pair{"rotary_pct", "partial_rotary_factor"}, {"rotary_emb_base", "rope_theta"}}) {
    Json stated = json;
    stated[other] = 0.75;
    EXPECT_LOAM_ERROR(kGptNeoxFamily.read(stated), ErrorCode::kBadFormat, other);
    stated["rope_parameters"] = nullptr;
    stated[own] = 0.75;
    EXPECT_NO_THROW(kGptNeoxFamily.read(stated)) << own;
  }
  Json heads = json;
  heads["head_dim"] = 8;  // 16 / 2
  EXPECT_NO_THROW(kGptNeoxFamily.read(heads));
  heads["head_dim"] = 16;
  EXPECT_LOAM_ERROR(kGptNeoxFamily.read(heads), ErrorCode::kBadFormat, "head_dim");
}

// Of what Gemma 3 says of its positions in two forms, neither is passed over.
TEST(Families, StatementsOfGemma3MustAgree) {
  const Json json = Json::parse(read_file(fixture("gemma3") / "config.json"));
  const auto read = [&](const char* key, const char* value, bool keep_theta = true) {
    Json changed = json;
    changed[key] = Json::parse(value);
    if (!keep_theta) {
      for (const char* kind : {"full_attention", "sliding_attention"}) {
        changed["rope_parameters"][kind]["rope_theta"] = nullptr;
      }
    }
    return kGemma3Family.read(changed);
  };
  EXPECT_EQ(read("rope_scaling", R"({"rope_type":"linear","factor":4.0})").rope_scaling.factor, 4);
  EXPECT_LOAM_ERROR(read("rope_scaling", R"({"rope_type":"linear","factor":2.0})"), ErrorCode::kBadFormat,
                    "do not say the same of \"factor\"");
  EXPECT_LOAM_ERROR(read("rope_scaling", R"({"type":"linear"})"), ErrorCode::kBadFormat, "\"type\"");
  EXPECT_EQ(read("rope_theta", "77.0", false).rope_theta, 77);
  EXPECT_EQ(read("rope_local_base_freq", "33.0", false).window_rope_theta, 33);
  EXPECT_EQ(read("rope_local_base_freq", "33.0").window_rope_theta, 20);  // as of the file
  Json beside = json;
  beside["rope_parameters"]["rope_theta"] = 50.0;
  EXPECT_LOAM_ERROR(kGemma3Family.read(beside), ErrorCode::kBadFormat, "rope_theta");
}

// transformers makes a mask of Gemma's window, used or not.
TEST(Families, GemmaWithoutWindowsStatesOne) {
  for (const std::string name : {"gemma2", "gemma3"}) {
    Json json = Json::parse(read_file(fixture(name) / "config.json"));
    const Family& family = family_named(json.at("model_type").as_string());
    for (Json& type : json["layer_types"].as_array()) type = "full_attention";
    const ModelConfig config = derive(family.read(json));
    EXPECT_EQ(config.window, 0);
    EXPECT_EQ(config.window_rope_theta, 0);
    EXPECT_TRUE(can_hold(family, config));
    EXPECT_GT(family.write(config).at("sliding_window").as_int(), 0);
  }
}

// What transformers would compute otherwise than loam is no family's form, though the keys could be written.
TEST(Families, HoldNothingThatTransformersComputesOtherwise) {
  ModelConfig c;
  c.vocab_size = 64, c.dim = 32, c.heads = 4, c.head_dim = 16, c.layers = 2;
  ModelConfig odd = c;
  odd.dim = 30;  // of 4 heads of 16: transformers has that in Mistral, not in Llama
  EXPECT_FALSE(can_hold(kLlamaFamily, derive(odd)));
  EXPECT_EQ(family_for(derive(odd)).name, "mistral");
  ModelConfig part = c;
  part.rope_dim = 8;  // only Phi-3 and GPT-NeoX rotate a part of a head
  EXPECT_EQ(family_for(derive(part)).name, "phi3");
  EXPECT_FALSE(can_hold(kLlamaFamily, derive(part)));
  ModelConfig longrope = c;
  longrope.rope_scaling.kind = RopeScalingKind::longrope;
  longrope.rope_scaling.original_context = 64;
  longrope.rope_scaling.short_factors = longrope.rope_scaling.long_factors = std::vector<double>(8, 2.0);
  EXPECT_FALSE(can_hold(kPhi3Family, derive(longrope)));  // head_dim is not dim / heads
  longrope.head_dim = 0;
  longrope.rope_scaling.short_factors = longrope.rope_scaling.long_factors = std::vector<double>(4, 2.0);
  EXPECT_TRUE(can_hold(kPhi3Family, derive(longrope)));
  Json gemma = Json::parse(read_file(fixture("gemma3") / "config.json"));
  gemma["rope_parameters"]["sliding_attention"] = Json::parse(R"({"type":"linear","factor":8.0,"rope_theta":20.0})");
  EXPECT_LOAM_ERROR(kGemma3Family.read(gemma), ErrorCode::kBadFormat, "sliding_attention");
  Json qwen = Json::parse(read_file(fixture("qwen2_tied") / "config.json"));
  qwen["use_sliding_window"] = true;
  qwen["sliding_window"] = nullptr;
  qwen["layer_types"] = nullptr;
  EXPECT_EQ(derive(kQwen2Family.read(qwen)).window, 0);
}

// Settings that say the same in another way.
TEST(Families, HoldWhatIsTheSame) {
  ModelConfig c;
  c.vocab_size = 64, c.dim = 32, c.heads = 2, c.layers = 2;
  c.attention_scale = 0.25;  // 1 / sqrt(16)
  EXPECT_TRUE(can_hold(kLlamaFamily, derive(c)));
  c.rope_scaling.kind = RopeScalingKind::ntk;
  c.rope_scaling.factor = 4;
  EXPECT_TRUE(can_hold(kLlamaFamily, derive(c)));
  const ModelConfig read = derive(kLlamaFamily.read(kLlamaFamily.write(derive(c))));
  EXPECT_NEAR(read.rope_theta, 10000 * std::pow(4.0, 16.0 / 14), 1e-8);
}

}  // namespace
}  // namespace loam
