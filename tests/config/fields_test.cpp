#include "loam/config/fields.h"

#include <gtest/gtest.h>

#include "loam/config/train_config.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

using testing::error_of;

struct Inner {
  std::vector<int64_t> sizes{1, 2};
  std::string text = "a";
};
template <class Config, class Visitor>
requires FieldsOf<Config, Inner>
void visit_fields(Config& c, Visitor&& visit) {
  visit("sizes", c.sizes, "a list");
  visit("text", c.text, "a text");
}

struct Outer {
  bool flag = false;
  int64_t count = 3;
  double rate = 0.5;
  NormKind norm = NormKind::rms;
  Inner inner;
};
template <class Config, class Visitor>
requires FieldsOf<Config, Outer>
void visit_fields(Config& c, Visitor&& visit) {
  visit("flag", c.flag, "a switch");
  visit("count", c.count, "a number of things");
  visit("rate", c.rate, "a rate");
  visit("norm", c.norm, "a kind");
  visit("inner", c.inner, "a part");
}

struct Part {
  std::string name;
  std::optional<double> limit;
  std::vector<Inner> inners;
};
template <class Config, class Visitor>
requires FieldsOf<Config, Part>
void visit_fields(Config& c, Visitor&& visit) {
  visit("name", c.name, "a text");
  visit("limit", c.limit, "a number, or none");
  visit("inners", c.inners, "parts of it");
}

struct Parts {
  std::vector<Part> parts;
};
template <class Config, class Visitor>
requires FieldsOf<Config, Parts>
void visit_fields(Config& c, Visitor&& visit) { visit("parts", c.parts, "a list of parts"); }

TEST(Fields, ListsOfStructsAndNumbersThatMayBeMissing) {
  Parts config;
  config_set(config, R"(parts=[{"name":"a","limit":0.5},{"inners":[{"sizes":[]},{}]}])");
  ASSERT_EQ(config.parts.size(), 2u);
  EXPECT_EQ(config.parts[0].limit, 0.5);
  EXPECT_FALSE(config.parts[1].limit);
  EXPECT_EQ(config_to_json(config).dump(),
            R"({"parts":[{"name":"a","limit":0.5,"inners":[]},{"name":"","limit":null,"inners":)"
            R"([{"sizes":[],"text":"a"},{"sizes":[1,2],"text":"a"}]}]})");
  Parts read;
  config_from_json(read, config_to_json(config));
  EXPECT_EQ(config_to_json(read), config_to_json(config));
  config_set(config, R"(parts=[{"limit":null}])");
  ASSERT_EQ(config.parts.size(), 1u);  // a list is set as a whole
  EXPECT_FALSE(config.parts[0].limit);

  const std::vector<FieldInfo> fields = config_fields(Parts{});
  ASSERT_EQ(fields.size(), 1u);
  EXPECT_EQ(fields[0].name, "parts");
  EXPECT_EQ(fields[0].type, "list of {name, limit, inners}");
  EXPECT_EQ(fields[0].value.dump(), "[]");
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"(parts={"name":"a"})", "parts: expected a list, found an object"},
      {R"(parts=[{"name":"a"},{"nam":"a"}])", R"(unknown setting "parts[1].nam": did you mean "parts[1].name"?)"},
      {R"(parts=[{"limit":"no"}])", "parts[0].limit: expected a number, found \"no\""},
      {R"(parts=[{"inners":[{},{"sizes":1}]}])", "parts[0].inners[1].sizes: expected a list, found 1"},
      {R"(parts=[3])", "parts[0]: expected an object, found 3"},
  };
  for (const auto& [assignment, message] : cases) {
    EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&, &text = assignment] { config_set(config, text); }), message);
  }
}

TEST(Fields, WritesEveryFieldInOrder) {
  EXPECT_EQ(config_to_json(Outer{}).dump(),
            R"({"flag":false,"count":3,"rate":0.5,"norm":"rms","inner":{"sizes":[1,2],"text":"a"}})");
}

TEST(Fields, ReadsWhatIsGivenAndLeavesTheRest) {
  Outer config;
  config_from_json(config, Json::parse(R"({"norm":"layer","inner":{"sizes":[7]},"count":1e3,"rate":2})"));
  EXPECT_EQ(config.norm, NormKind::layer);
  EXPECT_EQ(config.inner.sizes, std::vector<int64_t>{7});
  EXPECT_EQ(config.inner.text, "a");
  EXPECT_EQ(config.count, 1000);
  EXPECT_EQ(config.rate, 2.0);
  EXPECT_FALSE(config.flag);
}

TEST(Fields, JsonRoundTripOfEveryField) {
  TrainConfig config;
  config.optimizer.lr = 0.1 + 0.2;
  config.model.positions = PositionKind::learned;
  config.sample_prompt = "\"quoted\" \xE2\x82\xAC\n";
  TrainConfig read;
  config_from_json(read, Json::parse(config_to_json(config).dump(2)));
  EXPECT_EQ(config_to_json(read), config_to_json(config));
  EXPECT_EQ(read.optimizer.lr, 0.1 + 0.2);
}

TEST(Fields, ErrorsNameTheSettingAndChangeNothing) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"count":1,"inner":{"sizs":[1]}})", R"(unknown setting "inner.sizs": did you mean "inner.sizes"?)"},
      {R"({"count":1,"flag":true,"count":2})", R"(the setting "count" is there twice)"},
      {R"({"inner":{"text":"a","text":"a"}})", R"(the setting "inner.text" is there twice)"},
      {R"({"count":9223372036854775808})", "count: expected an integer, found 9.223372036854776e+18"},
      {R"({"count":1,"colour":2})", R"(unknown setting "colour": did you mean "count"?)"},
      {R"({"count":1,"zzzzzzzzz":2})", R"(unknown setting "zzzzzzzzz")"},
      {R"({"count":1,"flag":1})", "flag: expected true or false, found 1"},
      {R"({"flag":true,"count":1.5})", "count: expected an integer, found 1.5"},
      {R"({"flag":true,"count":1e300})", "count: expected an integer, found 1e+300"},
      {R"({"flag":true,"count":true})", "count: expected an integer, found true"},
      {R"({"flag":true,"count":null})", "count: expected an integer, found null"},
      {R"({"count":1,"rate":"fast"})", "rate: expected a number, found \"fast\""},
      {R"({"count":1,"norm":"batch"})", "norm: expected one of rms|layer, found \"batch\""},
      {R"({"count":1,"inner":3})", "inner: expected an object, found 3"},
      {R"({"count":1,"inner":{"sizes":[1,"2"]}})", "inner.sizes: expected an integer, found \"2\""},
      {R"([1])", "the configuration: expected an object, found a list"},
  };
  for (const auto& [text, message] : cases) {
    Outer config;
    const std::string found =
        error_of(ErrorCode::kInvalidArgument, [&, &json = text] { config_from_json(config, Json::parse(json)); });
    if (message.find("colour") != std::string::npos) {
      EXPECT_TRUE(found.starts_with(R"(unknown setting "colour")")) << found;
    } else {
      EXPECT_EQ(found, message);
    }
    EXPECT_EQ(config_to_json(config), config_to_json(Outer{})) << text;
  }
}

TEST(Fields, SetTakesJsonOrPlainWords) {
  Outer config;
  config_set(config, "norm=layer");
  config_set(config, "inner.text=123");
  config_set(config, "inner.sizes=[4,5]");
  config_set(config, "rate=3e-4");
  config_set(config, "flag=true");
  EXPECT_EQ(config.norm, NormKind::layer);
  EXPECT_EQ(config.inner.text, "123");
  EXPECT_EQ(config.inner.sizes, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(config.rate, 3e-4);
  EXPECT_TRUE(config.flag);
  config_set(config, "inner.text=a=b");
  EXPECT_EQ(config.inner.text, "a=b");
  config_set(config, "inner.text=");
  EXPECT_EQ(config.inner.text, "");
  config_set(config, R"(inner={"text":"whole","sizes":[]})");
  EXPECT_EQ(config.inner.text, "whole");
  EXPECT_TRUE(config.inner.sizes.empty());
}

TEST(Fields, SetErrors) {
  Outer config;
  const auto set = [&](std::string assignment) {
    return error_of(ErrorCode::kInvalidArgument, [&] { config_set(config, assignment); });
  };
  EXPECT_EQ(set("count"), "setting \"count\": expected name=value");
  EXPECT_EQ(set("inner.txt=1"), "unknown setting \"inner.txt\": did you mean \"inner.text\"?");
  EXPECT_EQ(set("sizes=[1]"), "unknown setting \"sizes\": did you mean \"inner.sizes\"?");
  // A long way to a setting makes no other one near.
  TrainConfig train;
  const auto said = [&](std::string assignment) {
    return error_of(ErrorCode::kInvalidArgument, [&] { config_set(train, assignment); });
  };
  EXPECT_EQ(said(R"(optimizer.groups=[{"match":"head","lr":2}])"),
            "unknown setting \"optimizer.groups[0].lr\": did you mean \"optimizer.groups[0].lr_scale\"?");
  EXPECT_EQ(said("optimizer.momentun=2"),
            "unknown setting \"optimizer.momentun\": did you mean \"optimizer.momentum\"?");
  EXPECT_EQ(said("optimizer.zzzzz=2"), "unknown setting \"optimizer.zzzzz\"");
  EXPECT_EQ(said("optimiser.lr=2"), "unknown setting \"optimiser.lr\": did you mean \"optimizer.lr\"?");
  EXPECT_EQ(said("model.lr=2"), "unknown setting \"model.lr\": did you mean \"optimizer.lr\"?");
  EXPECT_EQ(set("count=many"), "count: expected an integer, found \"many\"");
  EXPECT_EQ(set("count=[1]"), "count: expected an integer, found a list");
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_TRUE(set(deep + "=1").starts_with("unknown setting"));
  EXPECT_EQ(config_to_json(config), config_to_json(Outer{}));
}

TEST(Fields, ListHasTypesAndDefaults) {
  const std::vector<FieldInfo> fields = config_fields(Outer{});
  ASSERT_EQ(fields.size(), 6u);
  const std::vector<std::vector<std::string>> expected{{"flag", "true|false", "a switch", "false"},
                                                       {"count", "integer", "a number of things", "3"},
                                                       {"rate", "number", "a rate", "0.5"},
                                                       {"norm", "rms|layer", "a kind", "\"rms\""},
                                                       {"inner.sizes", "list of integer", "a list", "[1,2]"},
                                                       {"inner.text", "text", "a text", "\"a\""}};
  for (size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ((std::vector<std::string>{fields[i].name, fields[i].type, fields[i].help, fields[i].value.dump()}),
              expected[i]);
  }
}

TEST(Fields, DiffListsWhatChanged) {
  const Json before = Json::parse(R"({"a":{"lr":0.25,"old":1},"b":2,"c":[1]})");
  const Json after = Json::parse(R"({"a":{"lr":0.001,"new":"x"},"b":2.0,"c":[1,2]})");
  EXPECT_EQ(config_diff(before, after), (std::vector<std::string>{"a.lr: 0.25 -> 0.001", "a.old: 1 -> not set",
                                                                  "c: [1] -> [1,2]", "a.new: not set -> \"x\""}));
  EXPECT_TRUE(config_diff(before, before).empty());
}

TEST(Fields, DiffSaysNothingInWords) {
  const Json before = Json::parse(R"({"a":null,"b":null,"c":[],"d":""})"),
             after = Json::parse(R"({"a":1,"c":[1],"d":"x"})");
  EXPECT_EQ(config_diff(before, after),
            (std::vector<std::string>{"a: not set -> 1", "c: none -> [1]", "d: \"\" -> \"x\""}));
  EXPECT_EQ(config_diff(after, before),
            (std::vector<std::string>{"a: 1 -> not set", "c: [1] -> none", "d: \"x\" -> \"\""}));
}

TEST(Fields, DiffLooksIntoListsOfStructs) {
  const Json before = Json::parse(R"({"p":[{"a":1,"b":2},{"a":3,"b":4}],"e":[]})");
  const Json after = Json::parse(R"({"p":[{"a":1,"b":5}],"e":[{"a":1}]})");
  EXPECT_EQ(config_diff(before, after), (std::vector<std::string>{"p[0].b: 2 -> 5", "p[1].a: 3 -> not set",
                                                                  "p[1].b: 4 -> not set", "e[0].a: not set -> 1"}));
  EXPECT_EQ(config_diff(after, before), (std::vector<std::string>{"p[0].b: 5 -> 2", "e[0].a: 1 -> not set",
                                                                  "p[1].a: not set -> 3", "p[1].b: not set -> 4"}));
  EXPECT_TRUE(config_diff(before, before).empty());
}

// Names that scripts and stored runs rely on: a change here is a change of the interface.
const std::vector<std::string> kTrainingSettings{"model.vocab_size",
                                                 "model.context_length",
                                                 "model.layers",
                                                 "model.dim",
                                                 "model.heads",
                                                 "model.kv_heads",
                                                 "model.head_dim",
                                                 "model.ffn_dim",
                                                 "model.norm",
                                                 "model.norm_eps",
                                                 "model.norm_scale",
                                                 "model.norm_bias",
                                                 "model.norm_place",
                                                 "model.final_norm",
                                                 "model.block",
                                                 "model.activation",
                                                 "model.gated",
                                                 "model.mlp_bias",
                                                 "model.attention_bias",
                                                 "model.attention_out_bias",
                                                 "model.qk_norm",
                                                 "model.attention_scale",
                                                 "model.attention_softcap",
                                                 "model.window",
                                                 "model.attention_spans",
                                                 "model.positions",
                                                 "model.layer_positions",
                                                 "model.rope_theta",
                                                 "model.window_rope_theta",
                                                 "model.rope_dim",
                                                 "model.rope_pairs",
                                                 "model.rope_scaling.kind",
                                                 "model.rope_scaling.factor",
                                                 "model.rope_scaling.original_context",
                                                 "model.rope_scaling.low_freq_factor",
                                                 "model.rope_scaling.high_freq_factor",
                                                 "model.rope_scaling.beta_fast",
                                                 "model.rope_scaling.beta_slow",
                                                 "model.rope_scaling.truncate",
                                                 "model.rope_scaling.attention_factor",
                                                 "model.rope_scaling.short_factors",
                                                 "model.rope_scaling.long_factors",
                                                 "model.embedding_scale",
                                                 "model.residual_scale",
                                                 "model.logit_scale",
                                                 "model.logit_softcap",
                                                 "model.tied_embeddings",
                                                 "model.head",
                                                 "model.head_bias",
                                                 "model.dropout",
                                                 "model.attention_dropout",
                                                 "model.init",
                                                 "model.init_std",
                                                 "model.embedding_init_std",
                                                 "model.scaled_residual_init",
                                                 "model.zero_init_residual",
                                                 "model.zero_init_head",
                                                 "model.mup_base_dim",
                                                 "data.path",
                                                 "data.length",
                                                 "data.mask_documents",
                                                 "data.shuffle",
                                                 "data.packing",
                                                 "data.sources",
                                                 "data.stages",
                                                 "data.validation",
                                                 "optimizer.kind",
                                                 "optimizer.lr",
                                                 "optimizer.min_lr_ratio",
                                                 "optimizer.warmup_steps",
                                                 "optimizer.schedule",
                                                 "optimizer.decay_fraction",
                                                 "optimizer.decay_steps",
                                                 "optimizer.decay_until",
                                                 "optimizer.decay_shape",
                                                 "optimizer.beta1",
                                                 "optimizer.beta2",
                                                 "optimizer.eps",
                                                 "optimizer.weight_decay",
                                                 "optimizer.weight_decay_vectors",
                                                 "optimizer.clip_norm",
                                                 "optimizer.form",
                                                 "optimizer.momentum",
                                                 "optimizer.dampening",
                                                 "optimizer.nesterov",
                                                 "optimizer.alpha",
                                                 "optimizer.muon_lr",
                                                 "optimizer.muon_momentum",
                                                 "optimizer.muon_nesterov",
                                                 "optimizer.muon_steps",
                                                 "optimizer.muon_scale",
                                                 "optimizer.groups",
                                                 "steps",
                                                 "batch",
                                                 "micro_batch",
                                                 "recompute.groups",
                                                 "recompute.part",
                                                 "dtype",
                                                 "numerics",
                                                 "z_loss",
                                                 "seed",
                                                 "log_every",
                                                 "val_every",
                                                 "val_rows",
                                                 "save_every",
                                                 "keep_last",
                                                 "keep_every",
                                                 "keep_best",
                                                 "sample_every",
                                                 "sample_prompt",
                                                 "sample_tokens",
                                                 "detail_every",
                                                 "overfit_one_batch",
                                                 "spikes.action",
                                                 "spikes.window",
                                                 "spikes.threshold",
                                                 "spikes.max_rewinds",
                                                 "price.watts",
                                                 "price.per_kwh",
                                                 "price.per_hour"};

TEST(Fields, ListOfTrainingSettingsIsFrozen) {
  std::vector<std::string> found;
  for (const FieldInfo& field : config_fields(TrainConfig{})) {
    found.push_back(field.name);
    EXPECT_FALSE(field.help.empty()) << field.name;
  }
  EXPECT_EQ(found, kTrainingSettings);
}

}  // namespace
}  // namespace loam
