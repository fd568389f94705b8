#include "loam/config/train_config.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

using testing::error_of;

TEST(TrainConfig, DerivesLengthAndMicroBatch) {
  TrainConfig c;
  c.model.context_length = 128, c.batch = 24;
  c = derive(c);
  EXPECT_EQ(c.data.length, 128);
  EXPECT_EQ(c.micro_batch, 24);
  EXPECT_EQ(c.model.head_dim, 32);
  EXPECT_EQ(config_to_json(derive(c)), config_to_json(c));
}

TEST(TrainConfig, AutoIsANumberToBeFound) {
  TrainConfig c;
  config_set(c, "micro_batch=auto");
  EXPECT_EQ(derive(c).micro_batch, kAuto);
  config_set(c, "micro_batch=8");
  EXPECT_EQ(derive(c).micro_batch, 8);
  for (const char* wrong : {"micro_batch=most", "micro_batch=true", "micro_batch=[1]", "micro_batch=1.5"}) {
    const std::string said = error_of(ErrorCode::kInvalidArgument, [&] { config_set(c, wrong); });
    EXPECT_NE(said.find("micro_batch: expected an integer"), said.npos) << said;
  }
  config_set(c, "batch=auto");
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { derive(c); }), "batch is -1; it must be at least 1");
}

constexpr const char* kTwoSources = R"(data.sources=[{"name":"a","path":"x"},{"name":"b","path":"y","weight":0}])";

TEST(TrainConfig, SourcesAndStages) {
  TrainConfig c;
  config_set(c, kTwoSources);
  config_set(c, R"(data.stages=[{"weights":[3,0]},{"begin":0.8,"weights":[1,1]}])");
  config_set(c, R"(data.validation=[{"name":"books","path":"z"}])");
  c = derive(c);
  ASSERT_EQ(c.data.sources.size(), 2u);
  EXPECT_EQ(c.data.sources[0].weight, 1);
  EXPECT_EQ(c.data.stages[1].begin, 0.8);
  EXPECT_EQ(c.data.stages[0].weights, (std::vector<double>{3, 0}));
  EXPECT_EQ(first_data_path(c.data), "x");
  c.data.sources.clear(), c.data.path = "d";
  EXPECT_EQ(first_data_path(c.data), "d");
}

TEST(TrainConfig, ErrorsNameTheField) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"batch=32", "micro_batch=5"}, "batch (32) is not a multiple of micro_batch (5)"},
      {{"batch=0"}, "batch is 0"},
      {{"steps=0"}, "steps is 0"},
      {{"recompute.groups=[9]"}, "recompute.groups[0] is 9; it must be from 1 to the 6 layers"},
      {{"recompute.groups=[2,0]"}, "recompute.groups[1] is 0; it must be from 1 to the 6 layers"},
      {{"recompute.groups=[2,2]"}, "recompute.groups[1] is 2, which is not below the 2 before it"},
      {{"dtype=tf32", "numerics=exact"}, "dtype tf32 rounds what numerics exact multiplies as it is"},
      {{"data.length=300"}, "data.length (300) is above model.context_length (256)"},
      {{"data.length=-1"}, "data.length is -1"},
      {{R"(data.sources=[{"path":"a"}])"}, "data.sources[0].name is \"\""},
      {{R"(data.sources=[{"name":"a"}])"}, "data.sources[0].path is empty (a)"},
      {{R"(data.sources=[{"name":"a","path":"x"},{"name":"a","path":"y"}])"}, R"(data.sources has "a" twice)"},
      {{R"(data.sources=[{"name":"a","path":"x","weight":-1}])"}, "data.sources[0].weight is -1"},
      {{R"(data.sources=[{"name":"a","path":"x","weight":0}])"}, "the weights of data.sources: all are 0"},
      {{R"(data.sources=[{"name":"a","path":"x"}])", "data.path=y"}, "data.path and data.sources are both set"},
      {{R"(data.stages=[{"weights":[1]}])"}, "data.stages needs data.sources"},
      {{R"(data.validation=[{"name":"a","path":"x"},{"name":"a","path":"y"}])"}, R"(data.validation has "a" twice)"},
      {{kTwoSources, R"(data.stages=[{"begin":0.5,"weights":[1,1]}])"}, "data.stages[0].begin is 0.5"},
      {{kTwoSources, R"(data.stages=[{"weights":[1]}])"}, "data.stages[0].weights has 1 numbers for 2 sources"},
      {{kTwoSources, R"(data.stages=[{"weights":[0,0]}])"}, "data.stages[0].weights: all are 0"},
      {{kTwoSources, R"(data.stages=[{"weights":[1,-1]}])"}, "data.stages[0].weights has -1"},
      {{kTwoSources, R"(data.stages=[{"weights":[1,1]},{"begin":0.5,"weights":[1,0]},{"begin":0.5,"weights":[0,1]}])"},
       "data.stages[2].begin is 0.5, which is not behind 0.5"},
      {{kTwoSources, R"(data.stages=[{"weights":[1,1]},{"begin":1,"weights":[1,0]}])"}, "data.stages[1].begin is 1"},
      {{"optimizer.lr=0"}, "optimizer.lr is 0"},
      {{"optimizer.lr=-1"}, "optimizer.lr is -1"},
      {{"optimizer.beta2=1"}, "optimizer.beta2 is 1"},
      {{"optimizer.beta1=-0.1"}, "optimizer.beta1 is -0.1"},
      {{"optimizer.eps=0"}, "optimizer.eps is 0"},
      {{"optimizer.min_lr_ratio=1.5"}, "optimizer.min_lr_ratio is 1.5"},
      {{"optimizer.decay_fraction=-1"}, "optimizer.decay_fraction is -1"},
      {{"optimizer.weight_decay=-1"}, "optimizer.weight_decay is -1"},
      {{"optimizer.warmup_steps=-1"}, "optimizer.warmup_steps is -1"},
      {{"optimizer.clip_norm=-1"}, "optimizer.clip_norm is -1"},
      {{"optimizer.muon_steps=0"}, "optimizer.muon_steps is 0"},
      {{"optimizer.momentum=1"}, "optimizer.momentum is 1"},
      {{"optimizer.kind=lion", "optimizer.form=course"}, "optimizer.form course is a form of adamw"},
      {{"optimizer.kind=sgd", "optimizer.nesterov=true"}, "optimizer.nesterov needs optimizer.momentum"},
      {{"optimizer.kind=sgd", "optimizer.nesterov=true", "optimizer.momentum=0.9", "optimizer.dampening=0.1"},
       "optimizer.nesterov needs optimizer.momentum and no dampening"},
      {{R"(optimizer.groups=[{"match":"head"},{"match":"matrix","lr_scale":-1}])"},
       "optimizer.groups[1].lr_scale is -1"},
      {{R"(optimizer.groups=[{"match":"head","weight_decay":-1}])"}, "optimizer.groups[0].weight_decay is -1"},
      {{R"(optimizer.groups=[{"lr_scale":2}])"}, "optimizer.groups[0].match is empty"},
      {{R"(optimizer.groups=[{"match":"head","beta1":1}])"}, "optimizer.groups[0].beta1 is 1"},
      {{R"(optimizer.groups=[{"match":"head","eps":0}])"}, "optimizer.groups[0].eps is 0"},
      {{R"(optimizer.groups=[{"match":"head","kind":"adamx"}])"}, "optimizer.groups[0].kind: expected one of adamw|"},
      {{"optimizer.nesterov=true", R"(optimizer.groups=[{"match":"head","kind":"sgd"}])"},
       "optimizer.nesterov needs optimizer.momentum"},
      {{"optimizer.decay_until=100"}, "optimizer.decay_until (100) is not beyond optimizer.warmup_steps (100)"},
      {{"model.mup_base_dim=128", R"(optimizer.groups=[{"match":"head"},{"match":"vector","kind":"sgd"}])"},
       "not optimizer.groups[1].kind sgd"},
      {{"model.mup_base_dim=128", "optimizer.kind=sgd"}, "model.mup_base_dim makes rates"},
      {{"model.mup_base_dim=128", "optimizer.kind=rmsprop"}, "not optimizer.kind rmsprop"},
      {{"keep_last=0"}, "keep_last is 0"},
      {{"overfit_one_batch=true", "spikes.action=rewind"}, "overfit_one_batch has only one"},
      {{"log_every=0"}, "log_every is 0"},
      {{"seed=-1"}, "seed is -1"},
      {{"model.heads=7"}, "model.dim (256) is not a multiple of model.heads (7)"},
  };
  for (const auto& [settings, part] : cases) {
    const std::string found = error_of(ErrorCode::kInvalidArgument, [&, &list = settings] {
      TrainConfig c;
      for (const std::string& setting : list) config_set(c, setting);
      derive(c);
    });
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }
}

// Sets the number called `name`; false if there is none.
template <class Config>
bool put_number(Config& config, const std::string& name, double value) {
  bool found = false;
  visit_fields(config, [&](const char* key, auto& field, const char*) {
    using T = std::remove_cvref_t<decltype(field)>;
    if constexpr (config_detail::FieldStruct<T>) {
      const std::string prefix = std::string(key) + ".";
      if (name.starts_with(prefix)) found |= put_number(field, name.substr(prefix.size()), value);
    } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                         std::is_same_v<T, std::optional<double>>) {
      if (name != key) return;
      using Number = std::conditional_t<std::is_same_v<T, int64_t>, int64_t, double>;
      field = static_cast<Number>(value);
      found = true;
    }
  });
  return found;
}

// Every number of a configuration by name, and whether 0 is one of its values. None takes a negative number.
const std::map<std::string, bool> kZeroAllowed{{"model.vocab_size", true},
                                               {"model.context_length", false},
                                               {"model.layers", false},
                                               {"model.dim", false},
                                               {"model.heads", false},
                                               {"model.kv_heads", true},
                                               {"model.head_dim", true},
                                               {"model.ffn_dim", true},
                                               {"model.norm_eps", false},
                                               {"model.rope_theta", false},
                                               {"model.init_std", true},
                                               {"model.attention_scale", true},
                                               {"model.attention_softcap", true},
                                               {"model.window", true},
                                               {"model.window_rope_theta", true},
                                               {"model.rope_dim", true},
                                               {"model.rope_scaling.factor", false},
                                               {"model.rope_scaling.original_context", true},
                                               {"model.rope_scaling.low_freq_factor", false},
                                               {"model.rope_scaling.high_freq_factor", true},
                                               {"model.rope_scaling.beta_fast", false},
                                               {"model.rope_scaling.beta_slow", false},
                                               {"model.rope_scaling.attention_factor", true},
                                               {"model.embedding_scale", false},
                                               {"model.residual_scale", false},
                                               {"model.logit_scale", false},
                                               {"model.logit_softcap", true},
                                               {"model.dropout", true},
                                               {"model.attention_dropout", true},
                                               {"model.embedding_init_std", true},
                                               {"model.mup_base_dim", true},
                                               {"z_loss", true},
                                               {"data.length", true},
                                               {"optimizer.lr", false},
                                               {"optimizer.min_lr_ratio", true},
                                               {"optimizer.warmup_steps", true},
                                               {"optimizer.decay_fraction", true},
                                               {"optimizer.beta1", true},
                                               {"optimizer.beta2", true},
                                               {"optimizer.eps", false},
                                               {"optimizer.weight_decay", true},
                                               {"optimizer.weight_decay_vectors", true},
                                               {"optimizer.clip_norm", true},
                                               {"optimizer.decay_steps", true},
                                               {"optimizer.decay_until", true},
                                               {"optimizer.momentum", true},
                                               {"optimizer.dampening", true},
                                               {"optimizer.alpha", true},
                                               {"optimizer.muon_lr", true},
                                               {"optimizer.muon_momentum", true},
                                               {"optimizer.muon_steps", false},
                                               {"steps", false},
                                               {"batch", false},
                                               {"micro_batch", true},
                                               {"seed", true},
                                               {"log_every", false},
                                               {"val_every", true},
                                               {"val_rows", true},
                                               {"save_every", true},
                                               {"keep_last", false},
                                               {"keep_every", true},
                                               {"sample_every", true},
                                               {"sample_tokens", false},
                                               {"detail_every", true},
                                               {"spikes.window", false},
                                               {"spikes.threshold", false},
                                               {"spikes.max_rewinds", true},
                                               {"price.watts", true},
                                               {"price.per_kwh", true},
                                               {"price.per_hour", true}};

TEST(TrainConfig, EveryNumberRefusesWhatItCannotBe) {
  size_t numbers = 0;
  for (FieldInfo field : config_fields(TrainConfig{})) {
    if (field.type == "number|null") field.type = "number";
    if (field.type != "number" && field.type != "integer") continue;
    ++numbers;
    SCOPED_TRACE(field.name);
    const auto refuses = [&](double value) {
      TrainConfig config;
      ASSERT_TRUE(put_number(config, field.name, value));
      const std::string said = error_of(ErrorCode::kInvalidArgument, [&] { derive(config); });
      EXPECT_TRUE(said.starts_with(field.name + " is ")) << said;
      EXPECT_LT(said.size(), 100u) << said;
    };
    refuses(field.name == "micro_batch" ? kAuto - 1 : -1);
    if (field.type == "integer" && field.name != "seed") refuses(0x1p62);
    if (field.type == "number") {
      refuses(std::numeric_limits<double>::quiet_NaN());
      refuses(std::numeric_limits<double>::infinity());
      refuses(-std::numeric_limits<double>::infinity());
      refuses(-1e-300);
      refuses(1e300);
    }
    if (!kZeroAllowed.at(field.name)) {
      refuses(0);
    } else {
      TrainConfig config;
      ASSERT_TRUE(put_number(config, field.name, 0));
      EXPECT_NO_THROW(derive(config));
    }
  }
  EXPECT_EQ(numbers, kZeroAllowed.size());
}

TEST(TrainConfig, ProductsOfSizesDoNotOverflow) {
  TrainConfig config;
  config.steps = int64_t{1} << 40, config.batch = 1 << 24;
  EXPECT_LOAM_ERROR(derive(config), ErrorCode::kInvalidArgument, "too many tokens to count");
}

// Decay that is added to the gradient is another thing than decoupled decay, of which 0.1 is usual.
TEST(TrainConfig, WarnsOfDecayOfTheOtherForm) {
  TrainConfig c;
  for (const auto& [kind, warns] : {std::pair{"sgd", true},
                                    {"adam", true},
                                    {"rmsprop", true},
                                    {"adagrad", true},
                                    {"adamw", false},
                                    {"lion", false},
                                    {"muon", false}}) {
    config_set(c, std::string("optimizer.kind=") + kind);
    const std::vector<std::string> warnings = config_warnings(derive(c));
    ASSERT_EQ(warnings.size(), warns ? 1u : 0u) << kind;
    EXPECT_EQ(warns, !warnings.empty() && warnings[0].find(kind) != std::string::npos);
  }
  c.optimizer.kind = OptimizerKind::sgd, c.optimizer.weight_decay = 1e-4;
  EXPECT_TRUE(config_warnings(derive(c)).empty());
}

TEST(TrainConfig, WarnsOfAWarmUpThatNeverEnds) {
  TrainConfig c;
  c.steps = 50, c.optimizer.warmup_steps = 51;
  EXPECT_EQ(config_warnings(derive(c)),
            std::vector<std::string>{"optimizer.warmup_steps (51) is not below steps (50): the learning rate never "
                                     "reaches optimizer.lr"});
  c.steps = 1, c.optimizer.warmup_steps = 1;  // the only step has rate 0
  EXPECT_EQ(config_warnings(derive(c)).size(), 1u);
  c.steps = 50, c.optimizer.warmup_steps = 49;
  EXPECT_TRUE(config_warnings(derive(c)).empty());
}

TEST(TrainConfig, WarnsOfADecayThatIsCut) {
  TrainConfig c;
  c.steps = 100, c.optimizer.warmup_steps = 30, c.optimizer.schedule = ScheduleKind::wsd;
  c.optimizer.decay_steps = 71;
  EXPECT_EQ(config_warnings(derive(c)),
            std::vector<std::string>{"optimizer.decay_steps (71) reaches into the warm-up: the rate decays in the last "
                                     "70 of 100 steps"});
  c.optimizer.decay_steps = 70;
  EXPECT_TRUE(config_warnings(derive(c)).empty());
}

// The defaults of the papers and of torch.
TEST(TrainConfig, UsualBeta2AndEpsDependOnTheKind) {
  for (const auto& [kind, beta2, eps] : {std::tuple{"adamw", 0.95, 1e-8},
                                         {"lion", 0.99, 1e-8},
                                         {"adagrad", 0.95, 1e-10},
                                         {"rmsprop", 0.95, 1e-8},
                                         {"muon", 0.95, 1e-8}}) {
    TrainConfig c;
    config_set(c, std::string("optimizer.kind=") + kind);
    c = derive(c);
    EXPECT_EQ(c.optimizer.beta2, beta2) << kind;
    EXPECT_EQ(c.optimizer.eps, eps) << kind;
    config_set(c, "optimizer.beta2=0.5");
    config_set(c, "optimizer.eps=1e-5");
    EXPECT_EQ(derive(c).optimizer.beta2, 0.5);
    EXPECT_EQ(derive(c).optimizer.eps, 1e-5);
  }
}

// A group of a kind of its own has what is usual for it; adamw, adam and muon share what the optimizer sets.
TEST(TrainConfig, GroupsHaveTheDefaultsOfTheirKind) {
  TrainConfig c;
  config_set(c, "optimizer.kind=lion");
  config_set(c, "optimizer.beta1=0.8");
  config_set(c, R"(optimizer.groups=[{"match":"head","kind":"adamw"},{"match":"vector","kind":"adagrad"},
      {"match":"matrix"},{"match":"embedding","kind":"lion","beta2":0.5}])");
  c = derive(c);
  const auto& groups = c.optimizer.groups;
  EXPECT_EQ(rule_settings(c.optimizer, groups[0]), (RuleSettings{OptimizerKind::adamw, 0.9, 0.95, 1e-8}));
  EXPECT_EQ(rule_settings(c.optimizer, groups[1]).eps, 1e-10);
  EXPECT_EQ(rule_settings(c.optimizer, groups[2]), rule_settings(c.optimizer));
  EXPECT_EQ(rule_settings(c.optimizer, groups[3]), (RuleSettings{OptimizerKind::lion, 0.8, 0.5, 1e-8}));
  // What is derived is written down, and deriving it again changes nothing.
  EXPECT_EQ(groups[0].beta1, 0.9);
  EXPECT_EQ(groups[0].beta2, 0.95);
  EXPECT_FALSE(groups[2].beta1);
  EXPECT_EQ(config_to_json(derive(c)), config_to_json(c));
  TrainConfig muon;
  config_set(muon, "optimizer.kind=muon");
  config_set(muon, "optimizer.beta2=0.99");
  config_set(muon, R"(optimizer.groups=[{"match":"matrix","kind":"adam","eps":1e-6}])");
  muon = derive(muon);
  EXPECT_EQ(rule_settings(muon.optimizer, muon.optimizer.groups[0]),
            (RuleSettings{OptimizerKind::adam, 0.9, 0.99, 1e-6}));
}

TEST(TrainConfig, WarnsOfDecayInTheGradientOfGroups) {
  const auto warnings = [](const std::vector<std::string>& settings) {
    TrainConfig c;
    for (const std::string& setting : settings) config_set(c, setting);
    return config_warnings(derive(c));
  };
  using Lines = std::vector<std::string>;
  // What a group of another kind uses is in use; decay of 0.1 in its gradient is much.
  EXPECT_EQ(warnings({"optimizer.momentum=0.9", R"(optimizer.groups=[{"match":"head","kind":"sgd"}])"}),
            Lines{"optimizer.weight_decay in optimizer.groups[0] (0.1) is added to the gradient under sgd: usual are 0 "
                  "to 0.001"});
  EXPECT_EQ(warnings({R"(optimizer.groups=[{"match":"matrix","kind":"adam","weight_decay":0.2}])"}),
            Lines{"optimizer.groups[0].weight_decay (0.2) is added to the gradient under adam: usual are 0 to 0.001"});
  EXPECT_EQ(warnings({R"(optimizer.groups=[{"match":"vector","kind":"adam"}])"}), Lines{});
  EXPECT_EQ(warnings({"optimizer.decay_until=500"}), Lines{});
  EXPECT_EQ(warnings({"optimizer.schedule=wsd", "optimizer.decay_until=500"}),
            Lines{"without effect under optimizer.kind adamw and optimizer.schedule wsd: optimizer.decay_until"});
}

TEST(TrainConfig, OneWarningNamesWhatHasNoEffect) {
  const auto warnings = [](const std::vector<std::string>& settings) {
    TrainConfig c;
    for (const std::string& setting : settings) config_set(c, setting);
    return config_warnings(derive(c));
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(warnings({"optimizer.momentum=0.9", "optimizer.muon_lr=0.02", "optimizer.decay_steps=10"}),
            Lines{"without effect under optimizer.kind adamw and optimizer.schedule cosine: optimizer.momentum, "
                  "optimizer.muon_lr, optimizer.decay_steps"});
  EXPECT_EQ(warnings({"optimizer.kind=lion", "optimizer.eps=1e-6", "optimizer.alpha=0.9", "optimizer.schedule=constant",
                      "optimizer.min_lr_ratio=0"}),
            Lines{"without effect under optimizer.kind lion and optimizer.schedule constant: optimizer.eps, "
                  "optimizer.alpha, optimizer.min_lr_ratio"});
  EXPECT_EQ(warnings({"optimizer.kind=sgd", "optimizer.weight_decay=0", "optimizer.dampening=0.5"}),
            Lines{"without effect under optimizer.kind sgd and optimizer.schedule cosine: optimizer.dampening"});
  EXPECT_EQ(warnings({"optimizer.kind=muon", "optimizer.muon_lr=0.02", "optimizer.beta2=0.9", "optimizer.schedule=wsd",
                      "optimizer.decay_steps=10"}),
            Lines{});
}

// Names become keys of records and parts of file names.
TEST(TrainConfig, NamesOfDataAreOneLineOfText) {
  const auto derived = [](const std::string& name) {
    TrainConfig source, validation;
    source.data.sources = {{"first", "x", 1}, {name, "y", 1}};
    validation.data.validation = {{name, "y"}};
    derive(source);
    derive(validation);
  };
  for (const char* name : {"web", "held out", "a.b-c_d:2", "\xD0\xBA\xD0\xBD\xD0\xB8\xD0\xB3\xD0\xB0"}) {
    EXPECT_NO_THROW(derived(name)) << name;
  }
  EXPECT_NO_THROW(derived(std::string(100, 'a')));
  for (const std::string& name :
       {std::string(), std::string("../../x"), std::string("a/b"), std::string("a\\b"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("a\x7F"), std::string("\xFF"), std::string("\xC2\x85"), std::string("."),
        std::string(".."), std::string(" a"), std::string(101, 'a')}) {
    EXPECT_LOAM_ERROR(derived(name), ErrorCode::kInvalidArgument, "data.sources[1].name is \"");
  }
  TrainConfig c;
  c.data.validation = {{"a\x1B[31m\nb", "y"}};
  EXPECT_LOAM_ERROR(
      derive(c), ErrorCode::kInvalidArgument,
      "data.validation[0].name is \"a\\x1b[31m\\x0ab\"; it must be 1 to 100 bytes of text without slashes");
}

TEST(TrainConfig, SourcesAreNotMoreThanAMixtureCanServe) {
  TrainConfig c;
  for (int i = 0; i < 1024; ++i) c.data.sources.push_back({std::to_string(i), "x", 1});
  EXPECT_NO_THROW(derive(c));
  c.data.sources.push_back({"more", "x", 1});
  EXPECT_LOAM_ERROR(derive(c), ErrorCode::kInvalidArgument, "data.sources has 1025 entries; there may be 1024");
}

}  // namespace
}  // namespace loam
