#include "loam/train/model_tokenizer.h"

#include <gtest/gtest.h>

#include "loam/base/json.h"
#include "loam/text/tokenizer_files.h"
#include "tests/train/training_data.h"

namespace loam {
namespace {

class ModelTokenizer : public ::testing::Test {
 protected:
  ModelTokenizer() {
    model_ = make_model(resources_.context, testing::tiny_config().model, DType::f32, false);
    model_.bos_id = 7;
    model_.eos_ids = {7};
  }
  int32_t write(const std::string& tokenizer) {
    write_file_atomic(directory_ / "tokenizer.json", tokenizer);
    std::filesystem::create_directory(directory_ / "model");
    return write_model_tokenizer(directory_.path(), directory_ / "model", model_);
  }
  Json config() const { return Json::parse(read_file(directory_ / "model" / "tokenizer_config.json")); }

  testing::TempDir directory_;
  ExecResources resources_ = make_exec_resources(Device{}, 1);
  Model model_;
};

constexpr const char* kAdded =
    R"("added_tokens": [{"id": 7, "content": "<end>"}, {"id": 3, "content": "<begin>"}], "model": {"unk_token": null})";

TEST_F(ModelTokenizer, TheModelsTokensByName) {
  EXPECT_EQ(write(std::string("{") + kAdded + "}"), 7);
  EXPECT_EQ(config().at("bos_token"), Json("<end>"));
  EXPECT_EQ(config().at("eos_token"), Json("<end>"));
  EXPECT_EQ(config().at("model_max_length"), Json(24));
  EXPECT_EQ(read_file(directory_ / "model" / "tokenizer.json"), read_file(directory_ / "tokenizer.json"));
}

TEST_F(ModelTokenizer, TheTokenThatATemplatePutsFirst) {
  const std::string post =
      R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<begin>", "type_id": 0}}],
         "special_tokens": {"<begin>": {"id": "<begin>", "ids": [3], "tokens": ["<begin>"]}}})";
  // As Llama 3 has it: after another processor.
  const std::string sequence = R"("post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" +
                               post.substr(post.find('{')) + "]}";
  for (const std::string& form : {post, sequence}) {
    std::filesystem::remove_all(directory_ / "model");
    EXPECT_EQ(write("{" + form + ", " + kAdded + "}"), 3);
    EXPECT_EQ(config().at("bos_token"), Json("<begin>"));
    EXPECT_EQ(config().at("eos_token"), Json("<end>"));
  }
}

// Prefixes, normalizers and templates of every kind: a model's directory gives the ids of the library `tokenizers`.
TEST_F(ModelTokenizer, TheModelsDirectoryEncodesAsTheDataDid) {
  const Json forms = Json::parse(read_file(Path(LOAM_SOURCE_DIR) / "tests/fixtures/tokenizer_pipelines.json"));
  ASSERT_EQ(forms.as_array().size(), 16u);
  for (const Json& form : forms.as_array()) {
    SCOPED_TRACE(form.at("name").as_string());
    std::filesystem::remove_all(directory_ / "model");
    write(form.at("file").dump());
    EXPECT_EQ(read_file(directory_ / "model/tokenizer.json"), read_file(directory_ / "tokenizer.json"));
    const Tokenizer tokenizer = load_tokenizer(directory_ / "model");
    for (const Json& item : form.at("cases").as_array()) {
      Json ids = Json::array();
      for (const int32_t id : tokenizer.encode(item.as_array()[0].as_string(), SpecialPolicy::all()))
        ids.push_back(int64_t{id});
      EXPECT_EQ(ids, item.as_array()[1]) << item.as_array()[0].dump();
    }
  }
}

// The end of a long training is no time for an error about a file that the model does not need.
TEST_F(ModelTokenizer, AFileOfAnotherKindIsCopiedAndNoMore) {
  for (const char* text :
       {"[]", "{", "{\"a\": 1}", "{\"model\": 3, \"added_tokens\": [5]}", "{\"post_processor\": {\"single\": [7]}}"}) {
    std::filesystem::remove_all(directory_ / "model");
    EXPECT_EQ(write(text), 7) << text;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "model" / "tokenizer_config.json")) << text;
    EXPECT_EQ(read_file(directory_ / "model" / "tokenizer.json"), text);
  }
}

}  // namespace
}  // namespace loam
