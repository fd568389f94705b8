// The Transformer against PyTorch (fixtures) and against itself under changes that must not matter.
#include "loam/model/transformer.h"

#include <cmath>

#include "loam/model/families/family.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/expect_error.h"
#include "tests/model/model_testing.h"

namespace loam {
namespace {

using namespace loam::testing;

constexpr double kTolerance = 1e-5;  // relative in norm, f32 against f32

// The gradient of a fixture's tensor in the store: the rows of a fused parameter, transposed where the file is.
std::vector<float> gradient_of(const Model& model, const TensorRule& rule, int layer) {
  const auto at_layer = [&](std::string name) {
    const size_t at = name.find("{}");
    return at == std::string::npos ? name : name.replace(at, 2, std::to_string(layer));
  };
  const ParamRef param = model.weights->find(at_layer(rule.param));
  Tensor gradient = model.weights->gradient(param.index);
  for (const RowSlice& slice : model.weights->spec(param.index).slices) {
    if (slice.name == rule.slice) gradient = gradient.narrow(0, slice.begin, slice.rows);
  }
  if (rule.order == RowOrder::heads) {  // the file: of each head its rows of q, k and v; here all q, all k, all v
    const int64_t D = model.config().head_dim, H = model.config().heads, width = gradient.numel() / gradient.dim(0);
    const std::vector<float> rows = floats(gradient);
    std::vector<float> values;
    for (int64_t head = 0; head < H; ++head) {
      for (int64_t part = 0; part < 3; ++part) {
        const auto begin = rows.begin() + (part * H + head) * D * width;
        values.insert(values.end(), begin, begin + D * width);
      }
    }
    return values;
  }
  if (!rule.transposed) return floats(gradient);
  const auto [R, C] = gradient.dims<2>();
  std::vector<float> values;
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t r = 0; r < R; ++r) values.push_back(gradient.data<float>()[r * C + c]);
  }
  return values;
}

void expect_gradients_of_pytorch(const Model& model, const SafetensorsFile& expected) {
  const Family& family = family_named(model.family);
  size_t compared = 0;
  for (const TensorRule& rule : family.rules(model.config())) {
    const size_t at = rule.file_name.find("{}");
    const int layers = at == std::string::npos ? 1 : static_cast<int>(model.config().layers);
    for (int layer = 0; layer < layers; ++layer) {
      std::string name = rule.file_name;
      if (at != std::string::npos) name.replace(at, 2, std::to_string(layer));
      const std::vector<float> want = floats(expected.tensor("grad." + name)), have = gradient_of(model, rule, layer);
      EXPECT_LE(relative_error(have, want), kTolerance) << name;
      ++compared;
    }
  }
  const size_t gradients = static_cast<size_t>(std::count_if(expected.names().begin(), expected.names().end(),
                                                             [](const auto& n) { return n.starts_with("grad."); }));
  EXPECT_EQ(compared, gradients);
}

TEST(Transformer, LogitsLossAndGradientsEqualPyTorch) {
  for (const std::string& name : kFixtures) {
    SCOPED_TRACE(name);
    const ExecResources exec = testing::test_resources(2);
    const Model model = load_model(exec.context, fixture(name), DType::f32, true);
    const SafetensorsFile expected(fixture(name) / "expected.safetensors");
    const Batch batch = batch_of(expected);
    EXPECT_LE(relative_error(logits_of(exec.context, model, batch), floats(expected.tensor("logits"))), kTolerance);
    EXPECT_NEAR(train_pass(exec.context, model, batch), floats(expected.tensor("loss"))[0], 1e-5);
    expect_gradients_of_pytorch(model, expected);
  }
}

std::vector<std::vector<float>> gradients_of(const Model& model) {
  std::vector<std::vector<float>> all;
  for (int32_t i = 0; i < model.weights->size(); ++i) all.push_back(floats(model.weights->gradient(i)));
  return all;
}

std::vector<float> joined(const std::vector<std::vector<float>>& parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Rounds matrices and embeddings but computes in f32.
void round_weights(const Model& model, DType dtype) {
  for (int32_t i = 0; i < model.weights->size(); ++i) {
    if (model.weights->spec(i).kind == ParamKind::vector) continue;
    visit_float(dtype, "test", [&](auto type) {
      for (float& v : model.weights->value(i).span<float>()) v = static_cast<float>(decltype(type)(v));
    });
  }
}

// What one rounding of the weights does to a result, computed in f32, measures how the model amplifies a rounding. In a
// pass in 16 bits y = W x rounds W, x and y alike, and residual, norm and activation once more; backward rounds the
// gradients of those too: about seven roundings where the measure has one, independent, hence sqrt(7) = 2.6 times its
// error in norm. QK-norm rounds q and k once more before they are rotated, norms after attention and feed-forward block
// what these add, and an embedding's factor what it scales: five more, sqrt(12) = 3.5. A GPU also rounds what its
// tensor cores take, the probabilities of attention and the gradients of its scores: two more. 1.5 allows for one
// sample of each.
void expect_within_rounding(const std::string& name, DType dtype) {
  SCOPED_TRACE(name + " " + dtype_name(dtype));
  const ExecResources exec = testing::test_resources(1);
  const Batch batch = batch_of(SafetensorsFile(fixture(name) / "expected.safetensors"));
  const Model exact = load_model(exec.context, fixture(name), DType::f32, true);
  const Model measure = load_model(exec.context, fixture(name), DType::f32, true);
  const Model rounded = load_model(exec.context, fixture(name), dtype, true);
  round_weights(measure, dtype);
  const bool more = exact.config().qk_norm != QkNorm::none || exact.config().norm_place != NormPlace::pre;
  const double factor = std::sqrt(7.0 + (more ? 5 : 0) + (testing::on_cuda() ? 2 : 0)) * 1.5;
  EXPECT_EQ(rounded.weights->find("norm.weight").value().dtype(), DType::f32);
  EXPECT_EQ(rounded.weights->find("layers.0.attention.qkv").value().dtype(), dtype);

  const auto logits = logits_of(exec.context, exact, batch);
  const double unit = relative_error(logits_of(exec.context, measure, batch), logits);
  const double error = relative_error(logits_of(exec.context, rounded, batch), logits);
  EXPECT_LE(error, factor * unit);
  EXPECT_GT(error, unit / factor);

  const float loss = train_pass(exec.context, exact, batch);
  train_pass(exec.context, measure, batch);
  // Small gradients would fall below the normal numbers of f16.
  const float loss_scale = dtype == DType::f16 ? 4096 : 1;
  EXPECT_NEAR(train_pass(exec.context, rounded, batch, 0, {}, loss_scale), loss, factor * unit * loss);
  const auto want = gradients_of(exact), perturbed = gradients_of(measure);
  auto have = gradients_of(rounded);
  for (auto& gradient : have) {
    for (float& g : gradient) g /= loss_scale;
  }
  const double all = relative_error(joined(perturbed), joined(want));
  EXPECT_LE(relative_error(joined(have), joined(want)), factor * all);
  for (size_t i = 0; i < want.size(); ++i) {
    const double own = std::max(all, relative_error(perturbed[i], want[i]));
    EXPECT_LE(relative_error(have[i], want[i]), factor * own) << exact.weights->name(static_cast<int32_t>(i));
  }
}

TEST(Transformer, NarrowTypesStayWithinTheirRounding) {
  for (const std::string& name : kFixtures) {
    for (const DType dtype : {DType::bf16, DType::f16}) expect_within_rounding(name, dtype);
  }
}

Batch packed(Arena& arena, const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> ids, positions, first_key;
  for (const auto& document : documents) {
    const auto begin = static_cast<int32_t>(ids.size());
    for (size_t t = 0; t < document.size(); ++t) {
      ids.push_back(document[t]);
      positions.push_back(static_cast<int32_t>(t));
      first_key.push_back(begin);
    }
  }
  const auto T = static_cast<int64_t>(ids.size());
  return {Tensor::from<int32_t>(arena, {1, T}, ids),
          {},
          Tensor::from<int32_t>(arena, {1, T}, positions),
          Tensor::from<int32_t>(arena, {1, T}, first_key)};
}

// Documents packed into a row do not see each other: another A leaves every bit of B, and B is what it is alone.
TEST(Transformer, PackedDocumentsDoNotLeak) {
  for (const std::string& name : kFixtures) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(name + " " + dtype_name(dtype));
      const ExecResources exec = testing::test_resources(1);
      const Model model = load_model(exec.context, fixture(name), dtype);
      const std::vector<int32_t> a{3, 1, 4, 1, 5}, other_a{9, 2, 6, 5, 30}, b{31, 8, 9, 7, 9, 3}, c{17};
      const auto V = static_cast<size_t>(model.config().vocab_size);
      const auto tail = [&](const std::vector<float>& logits) {
        return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>((b.size() + c.size()) * V), logits.end());
      };
      const auto logits = logits_of(exec.context, model, packed(*exec.arena, {a, b, c}));
      const auto changed = logits_of(exec.context, model, packed(*exec.arena, {other_a, b, c}));
      EXPECT_EQ(tail(logits), tail(changed));
      EXPECT_NE(logits, changed);
      const auto alone = logits_of(exec.context, model, packed(*exec.arena, {b}));
      const std::vector<float> inside(logits.begin() + static_cast<std::ptrdiff_t>(a.size() * V),
                                      logits.begin() + static_cast<std::ptrdiff_t>((a.size() + b.size()) * V));
      // Tiles may end elsewhere: rounding differs. bf16: two roundings (2^-9) amplified by 5; f16 has an eighth of it.
      const double tolerance = dtype == DType::f32 ? kTolerance : dtype == DType::bf16 ? 0.02 : 0.02 / 8;
      EXPECT_LE(relative_error(inside, alone), tolerance);
      // Without first_key the second document does see the first.
      Batch leaking = packed(*exec.arena, {a, b, c});
      leaking.first_key = {};
      EXPECT_NE(tail(logits_of(exec.context, model, leaking)), tail(logits));
    }
  }
}

std::vector<float> hidden_of(const ExecContext& exec, const Model& model, const Batch& batch) {
  const Context ctx(exec);
  FullSequence sequence(batch.positions, batch.first_key);
  return floats(model.transformer->hidden(ctx, batch.ids, sequence).value);
}

// The same where A's values are huge (their squares still finite), and where A ends before, at and after the edges of
// attention's blocks: a document of one block, one more, one less, or a single token.
TEST(Transformer, PackedDocumentsDoNotLeakHugeValues) {
  for (const std::string name : {"llama_tied", "llama_untied_bias"}) {  // rotary positions reach beyond the context
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t length : {1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 192}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, dtype_name(dtype), length));
        const ExecResources exec = testing::test_resources(1);
        const Model model = load_model(exec.context, fixture(name), dtype);
        const int64_t C = model.config().dim;
        const Tensor huge = model.weights->find("embedding").value().narrow(0, 1, 1);  // of id 1
        for (int64_t c = 0; c < C; ++c) {
          const float value = (c % 2 ? 1e15f : -3e14f) * (dtype == DType::f16 ? 3e-11f : 1);
          visit_float(dtype, "test", [&](auto type) { huge.data<decltype(type)>()[c] = decltype(type)(value); });
        }
        const std::vector<int32_t> b{31, 8, 9, 7, 9, 3, 5, 2};
        const auto tail_after = [&](int32_t id) {
          const std::vector<int32_t> a(static_cast<size_t>(length), id);
          std::vector<float> hidden = hidden_of(exec.context, model, packed(*exec.arena, {a, b}));
          hidden.erase(hidden.begin(), hidden.begin() + length * C);
          return hidden;
        };
        const std::vector<float> after_huge = tail_after(1);
        EXPECT_EQ(after_huge, tail_after(4));
        for (float v : after_huge) ASSERT_TRUE(std::isfinite(v));
      }
    }
  }
}

// Every kind of positions, with a window and without, and A ending before, at and after the edges of attention's
// blocks.
TEST(Transformer, PackedDocumentsDoNotLeakWhateverThePositions) {
  const std::vector<int32_t> b{31, 8, 9, 7, 9, 3, 5, 2};
  for (const auto& [positions, name] : enum_names(PositionKind{})) {
    for (const int64_t window : {0, 40}) {
      const ExecResources exec = testing::test_resources(1);
      ModelConfig c;
      c.vocab_size = 32, c.context_length = 256, c.layers = 2, c.dim = 32, c.heads = 4, c.kv_heads = 2;
      c.positions = positions, c.window = window, c.init_std = 0.3;
      const Model model = make_model(exec.context, c, DType::f32, false);
      model.weights->initialize(5);
      for (const int64_t length : {1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 192}) {
        SCOPED_TRACE(fmt::format("{} window {} length {}", name, window, length));
        const auto tail_after = [&](int32_t id, bool masked) {
          Batch batch = packed(*exec.arena, {std::vector<int32_t>(static_cast<size_t>(length), id), b});
          if (!masked) batch.first_key = {};
          std::vector<float> hidden = hidden_of(exec.context, model, batch);
          hidden.erase(hidden.begin(), hidden.begin() + length * c.dim);
          return hidden;
        };
        const std::vector<float> tail = tail_after(1, true);
        EXPECT_EQ(tail, tail_after(4, true));
        EXPECT_NE(tail_after(1, false), tail_after(4, false));
      }
    }
  }
}

// Rows that see no key at all, not even their own, are finite and reach nothing: loss and gradients are those without
// them.
TEST(Transformer, RowsThatSeeNothingChangeNothing) {
  for (const std::string& name : kFixtures) {
    SCOPED_TRACE(name);
    const ExecResources exec = testing::test_resources(1);
    const Model model = load_model(exec.context, fixture(name), DType::f32, true);
    const std::vector<int32_t> document{3, 1, 4, 1, 5, 9, 2, 6, 5, 30, 31, 8};
    const auto with_padding = [&](size_t padding) {
      const size_t T = document.size() + padding;
      std::vector<int32_t> ids = document, positions, first_key(T, 0), targets(document.begin() + 1, document.end());
      ids.resize(T, 7);
      targets.resize(T, -1);
      for (size_t t = 0; t < T; ++t) positions.push_back(t < document.size() ? static_cast<int32_t>(t) : 0);
      std::fill(first_key.begin() + static_cast<std::ptrdiff_t>(document.size()), first_key.end(), int32_t(T));
      const auto row = [&](const std::vector<int32_t>& v) {
        return Tensor::from<int32_t>(*exec.arena, {1, static_cast<int64_t>(T)}, v);
      };
      return Batch{row(ids), row(targets), row(positions), row(first_key)};
    };
    const float loss = train_pass(exec.context, model, with_padding(0));
    const auto gradients = gradients_of(model);
    EXPECT_NEAR(train_pass(exec.context, model, with_padding(4)), loss, 1e-6 * loss);
    const auto padded = gradients_of(model);
    for (size_t i = 0; i < gradients.size(); ++i) {
      for (const float g : padded[i]) ASSERT_TRUE(std::isfinite(g));
      EXPECT_LE(relative_error(padded[i], gradients[i]), kTolerance) << model.weights->name(static_cast<int32_t>(i));
    }
  }
}

// Activations that are computed again in the backward pass: every bit of loss and gradients stays.
TEST(Transformer, RecomputationGivesEqualGradients) {
  for (const std::string& name : kFixtures) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(name + " " + dtype_name(dtype));
      const ExecResources exec = testing::test_resources(1);
      const Model model = load_model(exec.context, fixture(name), dtype, true);
      const Batch batch = batch_of(SafetensorsFile(fixture(name) / "expected.safetensors"));
      const float loss = train_pass(exec.context, model, batch);
      const auto gradients = gradients_of(model);
      for (const RecomputeConfig& again : {kRecomputations.front(), kRecomputations.back()}) {
        SCOPED_TRACE(config_to_json(again).dump());
        EXPECT_EQ(train_pass(exec.context, model, batch, 0, again), loss);
        EXPECT_EQ(gradients_of(model), gradients);
      }
    }
  }
}

// What dropout drops depends on the sample, not on the cut into micro-batches, nor on whether a block is computed
// again.
TEST(Transformer, DropoutIsTheSameForAnyCut) {
  ExecResources exec = testing::test_resources(2);
  StepState step;
  exec.context.step = &step;
  exec.context.seed = 3;
  ModelConfig c;
  c.vocab_size = 32, c.layers = 2, c.dim = 32, c.heads = 4, c.dropout = 0.2, c.attention_dropout = 0.3,
  c.init_std = 0.2;
  const Model model = make_model(exec.context, c, DType::f32, true);
  model.weights->initialize(1);
  const SafetensorsFile file(fixture("llama_tied") / "expected.safetensors");
  const Batch all = batch_of(file);
  int64_t count = 0;
  for (int32_t target : all.targets.span<int32_t>()) count += target >= 0;
  // Rows [begin, begin + rows), blocks recomputed or not; gradients are added.
  const auto pass = [&](int64_t begin, int64_t rows, const RecomputeConfig& again) {
    step.first_sample = 40 + begin;
    Tape tape;
    const Context ctx(exec.context, &tape);
    const auto part = [&](const Tensor& t) { return t.narrow(0, begin, rows); };
    FullSequence sequence(part(all.positions), part(all.first_key));
    const Var hidden = model.transformer->hidden(ctx, part(all.ids), sequence, again);
    const auto loss =
        ops::cross_entropy(ctx, hidden, model.transformer->head(), part(all.targets), 1 / static_cast<float>(count));
    tape.backward(ctx, loss.loss);
  };
  const auto gradients = [&](int64_t rows, const RecomputeConfig& again = {}) {
    model.weights->clear_gradients();
    for (int64_t begin = 0; begin < 2; begin += rows) pass(begin, rows, again);
    model.weights->finish_gradients(exec.context);
    return joined(gradients_of(model));
  };
  const std::vector<float> whole = gradients(2);
  for (const RecomputeConfig& again : kRecomputations) EXPECT_EQ(gradients(2, again), whole);
  EXPECT_LE(relative_error(gradients(1), whole), 1e-6);
  exec.context.seed = 4;
  EXPECT_GT(relative_error(gradients(2), whole), 0.1);
}

TEST(Transformer, ErrorsNameIdAndPosition) {
  const ExecResources exec = testing::test_resources(1);
  const Model gpt2 = load_model(exec.context, fixture("gpt2_tied"), DType::f32);
  EXPECT_LOAM_ERROR(logits_of(exec.context, gpt2, one_row(*exec.arena, {1, 2, 77})), ErrorCode::kInvalidArgument,
                    "id 77 is outside [0, 32)");
  EXPECT_LOAM_ERROR(logits_of(exec.context, gpt2, one_row(*exec.arena, {1, 2, 32})), ErrorCode::kInvalidArgument,
                    "id 32 is outside [0, 32)");
  EXPECT_LOAM_ERROR(logits_of(exec.context, gpt2, one_row(*exec.arena, {1, -5, 3})), ErrorCode::kInvalidArgument, "-5");
  const std::vector<int32_t> longest(16, 1), too_long(17, 1);
  EXPECT_EQ(logits_of(exec.context, gpt2, one_row(*exec.arena, longest)).size(), 16u * 32);
  EXPECT_LOAM_ERROR(logits_of(exec.context, gpt2, one_row(*exec.arena, too_long)), ErrorCode::kInvalidArgument,
                    "position 16 is outside the 16 positions");
  Batch mixed = one_row(*exec.arena, {1, 2});
  mixed.positions = one_row(*exec.arena, {1, 2, 3}).positions;
  EXPECT_LOAM_ERROR(logits_of(exec.context, gpt2, mixed), ErrorCode::kInvalidArgument,
                    "ids [1, 2] and positions [1, 3]");
}

TEST(Transformer, DeclaresWhatTheConfigurationCounts) {
  for (const std::string& name : kFixtures) {
    const ExecResources exec = testing::test_resources(1);
    const Model model = load_model(exec.context, fixture(name), DType::f32);
    EXPECT_EQ(model.weights->parameter_count(), parameter_count(model.config())) << name;
  }
  ParamStore store;
  EXPECT_LOAM_ERROR(Transformer(store, derive(ModelConfig{})), ErrorCode::kInvalidArgument, "vocab_size is 0");
}

TEST(Transformer, ResidualProjectionsStartSmaller) {
  const ExecResources exec = testing::test_resources(2);
  ModelConfig c;
  c.vocab_size = 64, c.layers = 8, c.dim = 128, c.heads = 4;
  const Model model = make_model(exec.context, c, DType::f32, false);
  model.weights->initialize(7);
  const auto deviation = [&](const char* name) {
    double squares = 0;
    const auto values = floats(model.weights->find(name).value());
    for (float v : values) squares += double{v} * v;
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  // 16384 or more values: five standard errors are 2.8 %.
  EXPECT_NEAR(deviation("layers.7.attention.qkv") / 0.02, 1, 0.028);
  EXPECT_NEAR(deviation("layers.7.attention.out") / (0.02 / 4), 1, 0.028);  // sqrt(2 * 8) = 4
  EXPECT_NEAR(deviation("layers.0.mlp.down") / (0.02 / 4), 1, 0.028);
}

// Standard deviations of the course's form, of heads and residual projections that start as 0, and of maximal update
// parametrisation: hidden matrices have 1 / width of the variance and of the learning rate, the logits 1 / width.
TEST(Transformer, InitialValuesAreAsConfigured) {
  const ExecResources exec = testing::test_resources(2);
  ModelConfig c;
  c.vocab_size = 512, c.layers = 2, c.dim = 256, c.heads = 4, c.kv_heads = 2, c.ffn_dim = 512;
  c.tied_embeddings = false;
  const auto deviation = [](const Model& model, const char* name, const char* slice = "") {
    const ParamRef param = model.weights->find(name);
    Tensor value = param.value();
    for (const RowSlice& s : model.weights->spec(param.index).slices) {
      if (s.name == slice) value = value.narrow(0, s.begin, s.rows);
    }
    double squares = 0;
    for (float v : value.span<float>()) squares += double{v} * v;
    return std::sqrt(squares / static_cast<double>(value.numel()));
  };
  const double cut = std::sqrt(0.97334);  // of a normal distribution cut at 3 standard deviations
  ModelConfig course = c;
  course.init = InitKind::truncated_normal, course.init_std = 0, course.scaled_residual_init = false;
  const Model m = make_model(exec.context, course, DType::f32, false);
  m.weights->initialize(7);
  EXPECT_NEAR(deviation(m, "embedding") / cut, 1, 0.02);
  EXPECT_NEAR(deviation(m, "head") / (cut * std::sqrt(2.0 / (512 + 256))), 1, 0.02);
  EXPECT_NEAR(deviation(m, "layers.0.attention.qkv", "q") / (cut * std::sqrt(2.0 / (256 + 256))), 1, 0.02);
  EXPECT_NEAR(deviation(m, "layers.0.attention.qkv", "v") / (cut * std::sqrt(2.0 / (128 + 256))), 1, 0.02);
  EXPECT_NEAR(deviation(m, "layers.1.mlp.down") / (cut * std::sqrt(2.0 / (512 + 256))), 1, 0.02);

  ModelConfig zero = c;
  zero.zero_init_head = zero.zero_init_residual = true;
  const Model z = make_model(exec.context, zero, DType::f32, false);
  z.weights->initialize(7);
  for (const char* name : {"head", "layers.0.attention.out", "layers.1.mlp.down"}) EXPECT_EQ(deviation(z, name), 0);
  EXPECT_GT(deviation(z, "layers.0.mlp.up"), 0.01);

  ModelConfig mup = c;
  mup.mup_base_dim = 64;
  const Model u = make_model(exec.context, mup, DType::f32, false);
  u.weights->initialize(7);
  EXPECT_NEAR(deviation(u, "layers.0.mlp.up") / (0.02 / 2), 1, 0.02);
  EXPECT_NEAR(deviation(u, "embedding") / 0.02, 1, 0.02);
  EXPECT_NEAR(deviation(u, "head") / 0.02, 1, 0.02);
  EXPECT_EQ(u.transformer->head().scale, 0.25f);
  EXPECT_EQ(u.weights->spec(u.weights->find("layers.0.mlp.up").index).lr_scale, 0.25);
  EXPECT_EQ(u.weights->spec(u.weights->find("embedding").index).lr_scale, 1);
  EXPECT_EQ(u.weights->spec(u.weights->find("head").index).lr_scale, 1);
}

}  // namespace
}  // namespace loam
