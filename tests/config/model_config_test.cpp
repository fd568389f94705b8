#include "loam/config/model_config.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

using testing::error_of;

ModelConfig gpt2_small() {
  ModelConfig c;
  c.vocab_size = 50257, c.context_length = 1024, c.layers = 12, c.dim = 768, c.heads = 12;
  c.norm = NormKind::layer, c.activation = ActivationKind::gelu_tanh, c.gated = false;
  c.attention_bias = c.attention_out_bias = c.mlp_bias = c.norm_bias = true;
  c.positions = PositionKind::learned;
  return derive(c);
}

// The published sizes of released models.
TEST(ModelConfig, CountsParametersOfKnownModels) {
  EXPECT_EQ(parameter_count(gpt2_small()), 124439808);
  EXPECT_EQ(non_embedding_parameter_count(gpt2_small()), 124439808 - (50257 + 1024) * 768);

  ModelConfig tiny_llama;  // TinyLlama-1.1B
  tiny_llama.vocab_size = 32000, tiny_llama.context_length = 2048, tiny_llama.layers = 22, tiny_llama.dim = 2048;
  tiny_llama.heads = 32, tiny_llama.kv_heads = 4, tiny_llama.ffn_dim = 5632, tiny_llama.tied_embeddings = false;
  EXPECT_EQ(parameter_count(derive(tiny_llama)), 1100048384);

  ModelConfig llama2;  // Llama-2-7B
  llama2.vocab_size = 32000, llama2.context_length = 4096, llama2.layers = 32, llama2.dim = 4096, llama2.heads = 32;
  llama2.ffn_dim = 11008, llama2.tied_embeddings = false;
  EXPECT_EQ(parameter_count(derive(llama2)), 6738415616);

  ModelConfig stories;  // stories260K of karpathy/tinyllamas
  stories.vocab_size = 512, stories.context_length = 512, stories.layers = 5, stories.dim = 64, stories.heads = 8;
  stories.kv_heads = 4, stories.ffn_dim = 172;
  EXPECT_EQ(parameter_count(derive(stories)), 260032);
}

TEST(ModelConfig, DerivesWhatIsLeftOut) {
  ModelConfig c;
  c.dim = 512, c.heads = 8;
  const ModelConfig d = derive(c);
  EXPECT_EQ(d.kv_heads, 8);
  EXPECT_EQ(d.head_dim, 64);
  EXPECT_EQ(d.ffn_dim, 1408);  // 8/3 512 = 1365.3, up to a multiple of 64
  EXPECT_EQ(config_to_json(derive(d)), config_to_json(d));
  c.dim = 768, c.gated = true;
  EXPECT_EQ(derive(c).ffn_dim, 2048);  // exactly 8/3 768
  c.gated = false;
  EXPECT_EQ(derive(c).ffn_dim, 3072);
}

TEST(ModelConfig, FlopsEqualASumOverPositions) {
  ModelConfig c;
  c.vocab_size = 96, c.layers = 3, c.dim = 48, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.ffn_dim = 40;
  c = derive(c);
  const int64_t length = 7;
  double total = 0;
  for (int64_t position = 0; position < length; ++position) {
    const double keys = static_cast<double>(position) + 1;
    for (int layer = 0; layer < 3; ++layer) {
      // Multiply-adds forward: q, k, v, out; gate, up, down; scores and the weighted sum of each head.
      const double products = 48 * 32 + 2 * 48 * 16 + 32 * 48 + 3 * 48 * 40 + 2 * 4 * 8 * keys;
      total += 3 * 2 * products;  // backward costs twice the forward pass
    }
    total += 3 * 2 * 96.0 * 48;
  }
  EXPECT_NEAR(training_flops_per_token(c, length), total / static_cast<double>(length), 1e-6);
}

TEST(ModelConfig, ErrorsNameTheField) {
  const auto message = [](const std::vector<std::string>& settings) {
    return error_of(ErrorCode::kInvalidArgument, [&] {
      ModelConfig c;
      for (const std::string& setting : settings) config_set(c, setting);
      derive(c);
    });
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"layers=0"}, "model.layers is 0"},
      {{"layers=-3"}, "model.layers is -3"},
      {{"dim=-1"}, "model.dim is -1"},
      {{"dim=9223372036854775807"}, "model.dim is 9223372036854775807"},
      {{"vocab_size=-1"}, "model.vocab_size is -1"},
      {{"vocab_size=4000000000"}, "model.vocab_size is"},
      {{"ffn_dim=1e15"}, "model.ffn_dim is"},
      {{"context_length=0"}, "model.context_length is 0"},
      {{"heads=0"}, "model.heads is 0"},
      {{"heads=3"}, "model.dim (256) is not a multiple of model.heads (3)"},
      {{"heads=8", "kv_heads=3"}, "model.heads (8) is not a multiple of model.kv_heads (3)"},
      {{"heads=8", "kv_heads=16"}, "model.heads (8) is not a multiple of model.kv_heads (16)"},
      {{"head_dim=12"}, "model.head_dim is 12"},
      {{"head_dim=264"}, "model.head_dim is 264"},
      {{"dim=96"}, "model.head_dim is 12"},
      {{"norm_eps=0"}, "model.norm_eps is 0"},
      {{"rope_theta=-1"}, "model.rope_theta is -1"},
      {{"init_std=-0.1"}, "model.init_std is -0.1"},
      {{"norm_bias=true"}, "model.norm_bias needs model.norm=layer"},
  };
  for (const auto& [settings, part] : cases) {
    const std::string found = message(settings);
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace loam
