// Which names mean which splits: tiktoken's encodings, and tokenizer.ggml.pre in GGUF files. Where llama.cpp runs an
// adapted pattern, the original of the tokenizer.json is taken.
#include <algorithm>

#include "loam/base/error.h"
#include "loam/base/suggest.h"
#include "loam/text/patterns.h"
#include "loam/text/pretokenizer.h"

namespace loam {
namespace {

using Regexes = std::vector<std::string_view>;

struct Named {
  std::vector<std::string_view> names;
  Regexes regexes;
};

// The letters that have case.
// clang-format off
constexpr std::string_view kLatinOfDeepSeek =
    R"(\s?[A-Za-z)"
    "\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376"
    "\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    "\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
    "\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
    "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
// clang-format on

const std::vector<Named>& table() {
  using namespace patterns;
  static const std::vector<Named> named = {
      {{"gpt2",       "gpt-2",      "r50k_base",   "p50k_base",       "phi-2",       "mpt",
        "olmo",       "jais",       "trillion",    "granite-docling", "roberta-bpe", "exaone4",
        "gigachat",   "mellum",     "modern-bert", "a.x-4.0",         "jina-es",     "jina-de",
        "jina-v1-en", "jina-v2-es", "jina-v2-de",  "jina-v2-code"},
       {kGpt2}},
      {{"cl100k", "cl100k_base"}, {kCl100k}},
      {{"o200k", "o200k_base", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m"},
       {kO200k}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
        "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"},
       {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"},
       {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"tekken"}, {kTekken}},
      {{"kimi-k2"}, {kKimi}},
      {{"seed-coder"}, {kSeedCoder}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailingMoe}},
      {{"minicpm5"}, {R"(\p{N}{1,3})", kMiniCpm5}},
      {{"exaone-moe"}, {kExaoneMoe}},
      {{"tiny_aya", "cohere2moe"}, {kDigitGroups, kO200k}},
      {{"superbpe"}, {R"(\p{N}+)", kDigitGroupCuts}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {R"(\p{N})", kGpt2}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"deepseek-llm"},
       {R"([\r\n])", kLatinOfDeepSeek, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", "[一-龥ࠀ-一가-퟿]+",
        R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeekWords}},
      {{"afmoe"},
       {kNumberGroups,
        "[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F"
        "\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-"
        "\uD7AF\u1100-\u11FF]+",
        kDeepSeekWords}},
      {{"youtu"},
       {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        kYoutu}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {R"( ?[^(\s|.,!?…。，、।۔،)]+)"}},
      {{"viking"}, {R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"}},
      {{"chameleon"},
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", R"(\p{N})",
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2}},
      {{"jais-2"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
        R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
        R"(\s{1,2}(?!\S)|\s{1})"}},
      {{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}, {R"(\n+)"}},
      {{"whitespace"}, {R"(\S+)"}},
  };
  return named;
}

std::vector<Split> splits_of(const Regexes& regexes) {
  std::vector<Split> splits;
  for (const std::string_view regex : regexes) splits.push_back({std::string(regex)});
  return splits;
}

}  // namespace

std::vector<std::string> pretokenizer_names() {
  std::vector<std::string> names;
  for (const Named& entry : table()) names.insert(names.end(), entry.names.begin(), entry.names.end());
  return names;
}

Pretokenizer parse_pretokenizer(std::string_view name) {
  for (const Named& entry : table()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) {
      return Pretokenizer(splits_of(entry.regexes));
    }
  }
  const std::string nearest = nearest_name(name, pretokenizer_names());
  fail(ErrorCode::kInvalidArgument, "unknown pre-tokenizer \"{}\"; {}", name,
       nearest.empty() ? "among those known are gpt2, cl100k, o200k, llama3 and qwen2"
                       : "did you mean \"" + nearest + "\"?");
}

std::string Pretokenizer::name() const {
  for (const Named& entry : table()) {
    if (splits_of(entry.regexes) == splits()) return std::string(entry.names[0]);
  }
  return "";
}

}  // namespace loam
