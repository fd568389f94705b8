// tiktoken's files of ranks.
#include <algorithm>
#include <charconv>

#include "loam/base/base64.h"
#include "loam/base/error.h"
#include "loam/base/suggest.h"
#include "loam/text/bpe_parts.h"
#include "loam/text/rank_merges.h"
#include "loam/text/tokenizer_files.h"

namespace loam {
namespace {

constexpr int64_t kMaxLineBytes = 4096;

struct NamedEncoding {
  std::string_view name, pretokenizer;
  int64_t ranks;  // how many its file has
};
// Where two have as many ranks, the first one is meant by the number.
constexpr NamedEncoding kEncodings[] = {
    {"r50k_base", "gpt2", 50256},       {"gpt2", "gpt2", 50256},           {"p50k_base", "gpt2", 50280},
    {"p50k_edit", "gpt2", 50280},       {"cl100k_base", "cl100k", 100256}, {"o200k_base", "o200k", 199998},
    {"o200k_harmony", "o200k", 199998}, {"llama3", "llama3", 128000},      {"qwen", "qwen2", 151643},
    {"llama4", "o200k", 200000},        {"qwen3.5", "qwen35", 248044},
};

using Specials = std::vector<SpecialToken>;

void add_numbered(Specials& specials, std::string_view name, int32_t first_number, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = specials.back().id + 1;
    specials.push_back({fmt::format("<|{}_{}|>", name, first_number + i), id});
  }
}

void add_next(Specials& specials, std::initializer_list<const char*> texts) {
  for (const char* text : texts) specials.push_back({text, specials.back().id + 1});
}

Specials harmony_specials() {
  Specials specials{{"<|startoftext|>", 199998}, {"<|endoftext|>", 199999}};
  add_numbered(specials, "reserved", 200000, 2);
  specials.push_back({"<|return|>", 200002});
  specials.push_back({"<|constrain|>", 200003});
  add_numbered(specials, "reserved", 200004, 1);
  add_next(specials, {"<|channel|>", "<|start|>", "<|end|>", "<|message|>"});
  add_numbered(specials, "reserved", 200009, 3);
  specials.push_back({"<|call|>", 200012});
  add_numbered(specials, "reserved", 200013, 5);
  specials.push_back({"<|endofprompt|>", 200018});  // also called <|reserved_200018|>
  add_numbered(specials, "reserved", 200019, 1069);
  return specials;
}

// Meta's for Llama 3; later models give other names to some of the reserved ones.
Specials llama3_specials() {
  Specials specials{{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001}};
  add_numbered(specials, "reserved_special_token", 0, 4);
  specials.push_back({"<|start_header_id|>", 128006});
  specials.push_back({"<|end_header_id|>", 128007});
  add_numbered(specials, "reserved_special_token", 4, 1);
  specials.push_back({"<|eot_id|>", 128009});
  add_numbered(specials, "reserved_special_token", 5, 246);
  return specials;
}

// Meta's for Llama 4: 2048 in all.
Specials llama4_specials() {
  Specials specials{{"<|begin_of_text|>", 200000}};
  add_next(specials, {"<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|header_start|>",
                      "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"});
  add_numbered(specials, "text_post_train_reserved_special_token", 0, 6);
  add_next(specials, {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  add_numbered(specials, "text_post_train_reserved_special_token", 8, 61);
  add_next(specials, {"<|image_start|>", "<|image_end|>"});
  add_numbered(specials, "vision_reserved_special_token", 0, 2);
  add_next(specials, {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  add_numbered(specials, "vision_reserved_special_token", 2, 4);
  add_next(specials, {"<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>"});
  add_numbered(specials, "vision_reserved_special_token", 7, 1041);
  add_numbered(specials, "reasoning_reserved_special_token", 0, 8);
  add_next(specials, {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  add_numbered(specials, "reserved_special_token", 0, static_cast<int32_t>(2048 - specials.size()));
  return specials;
}

Specials qwen35_specials() {
  Specials specials{{"<|endoftext|>", 248044}};
  add_next(specials, {"<|im_start|>",     "<|im_end|>",      "<|object_ref_start|>",  "<|object_ref_end|>",
                      "<|box_start|>",    "<|box_end|>",     "<|quad_start|>",        "<|quad_end|>",
                      "<|vision_start|>", "<|vision_end|>",  "<|vision_pad|>",        "<|image_pad|>",
                      "<|video_pad|>",    "<tool_call>",     "</tool_call>",          "<|fim_prefix|>",
                      "<|fim_middle|>",   "<|fim_suffix|>",  "<|fim_pad|>",           "<|repo_name|>",
                      "<|file_sep|>",     "<tool_response>", "</tool_response>",      "<think>",
                      "</think>",         "<|audio_start|>", "<|audio_end|>",         "<tts_pad>",
                      "<tts_text_bos>",   "<tts_text_eod>",  "<tts_text_bos_single>", "<|audio_pad|>"});
  return specials;
}

Specials specials_of(std::string_view encoding) {
  if (encoding == "p50k_edit")
    return {{"<|endoftext|>", 50256}, {"<|fim_prefix|>", 50281}, {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}};
  if (encoding == "cl100k_base")
    return {{"<|endoftext|>", 100257},
            {"<|fim_prefix|>", 100258},
            {"<|fim_middle|>", 100259},
            {"<|fim_suffix|>", 100260},
            {"<|endofprompt|>", 100276}};
  if (encoding == "o200k_base") return {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
  if (encoding == "o200k_harmony") return harmony_specials();
  if (encoding == "llama3") return llama3_specials();
  if (encoding == "llama4") return llama4_specials();
  if (encoding == "qwen3.5") return qwen35_specials();
  if (encoding == "qwen") {
    Specials specials{{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}};
    add_numbered(specials, "extra", 0, 205);
    return specials;
  }
  return {{"<|endoftext|>", 50256}};
}

// By id; "" for a rank that no line has.
std::vector<std::string> read_ranks(const Path& path) {
  LineReader lines(open_input(path), kMaxLineBytes);
  std::vector<std::pair<std::string, int32_t>> entries;
  int64_t size = 0;
  for (std::string line; lines.next(line);) {
    const auto refuse = [&](std::string_view what) {
      fail(ErrorCode::kBadFormat, "{}:{}: {}", path.string(), lines.line_number(), what);
    };
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos) refuse("not a token in base64, a space and a rank");
    int32_t rank = -1;
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
    if (error != std::errc() || stop != end || rank < 0) refuse("the rank is no number");
    std::string token;
    try {
      token = base64_decode(std::string_view(line).substr(0, space));
    } catch (const Error& e) {
      refuse(e.what());
    }
    if (token.empty() || token.size() > kMaxRankedBytes) refuse("a token of no bytes, or of too many");
    size = std::max<int64_t>(size, int64_t{rank} + 1);
    entries.emplace_back(std::move(token), rank);
  }
  if (size > 2 * static_cast<int64_t>(entries.size()) + 65536)
    fail(ErrorCode::kBadFormat, "{}: the rank {} is out of proportion to {} tokens", path.string(), size - 1,
         entries.size());
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (auto& [token, rank] : entries) {
    std::string& place = tokens[static_cast<size_t>(rank)];
    if (!place.empty()) fail(ErrorCode::kBadFormat, "{}: two tokens have the rank {}", path.string(), rank);
    place = std::move(token);
  }
  return tokens;
}

const NamedEncoding& find_encoding(std::string_view name, const Path& path, const std::vector<std::string>& tokens) {
  const auto named = [](std::string_view wanted) {
    return std::find_if(std::begin(kEncodings), std::end(kEncodings),
                        [&](const NamedEncoding& e) { return e.name == wanted; });
  };
  std::string known;
  for (const NamedEncoding& e : kEncodings) known += (known.empty() ? "" : ", ") + std::string(e.name);
  if (!name.empty()) {
    if (const auto* found = named(name); found != std::end(kEncodings)) return *found;
    fail(ErrorCode::kInvalidArgument, "unknown encoding of tiktoken \"{}\"; known are {}", name, known);
  }
  const std::string whole = path.filename().string();
  std::string_view file = whole;
  for (const std::string_view end : {".gz", ".zst", ".tiktoken", ".model"}) {
    if (file.ends_with(end)) file.remove_suffix(end.size());
  }
  if (const auto* found = named(file); found != std::end(kEncodings)) return *found;
  const auto count = std::count_if(tokens.begin(), tokens.end(), [](const std::string& t) { return !t.empty(); });
  for (const NamedEncoding& e : kEncodings) {
    if (e.ranks == count) return e;
  }
  fail(ErrorCode::kInvalidArgument, "{}: neither its name nor its {} ranks are those of an encoding; known are {}",
       path.string(), count, known);
}

}  // namespace

Tokenizer load_tiktoken(const Path& path, std::string_view encoding) {
  const std::string source = path.string();
  std::vector<std::string> tokens = read_ranks(path);
  const NamedEncoding& found = find_encoding(encoding, path, tokens);
  BpeModel model;
  model.pretokenizer = parse_pretokenizer(found.pretokenizer);
  model.ignore_merges = true;
  if (found.name.starts_with("qwen")) model.normalizer = Normalizer({normal::UnicodeForm{}});
  try {
    derive_merges(tokens, model);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", source, error.what());
  }
  model.tokens = std::move(tokens);
  for (const SpecialToken& special : specials_of(found.name)) {
    const auto id = static_cast<size_t>(special.id);
    if (id >= model.tokens.size()) model.tokens.resize(id + 1);
    if (!model.tokens[id].empty())
      fail(ErrorCode::kBadFormat, "{}: a token has the rank {}, which is that of {} in {}", source, special.id,
           special.text, found.name);
    model.tokens[id] = special.text;
    model.specials.push_back(special);
  }
  if (found.name == "llama3" || found.name == "llama4") model.frame = begins_with(model.specials[0].id);
  return make_tokenizer(std::move(model), source);
}

std::string tiktoken_ranks(const Tokenizer& tokenizer) {
  const BpeModel* model = tokenizer.bpe();
  LOAM_CHECK(model, "tokenizer: only byte-level BPE can be written as ranks");
  std::vector<std::string> tokens = model->tokens;
  for (const SpecialToken& special : model->specials) tokens[static_cast<size_t>(special.id)].clear();
  for (const std::string& token : tokens)
    LOAM_CHECK(token.size() <= kMaxRankedBytes, "tokenizer: a token has {} bytes, more than ranks may have ({})",
               token.size(), kMaxRankedBytes);
  BpeModel derived;
  try {
    derive_merges(tokens, derived);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "tokenizer: {}", error.what());
  }
  LOAM_CHECK(derived.merges == model->merges && derived.merge_ids == model->merge_ids,
             "tokenizer: its merges do not follow from the order of its ids, so it cannot be written as ranks");
  const auto made = static_cast<int64_t>(derived.merges.size());
  const auto longer = std::count_if(tokens.begin(), tokens.end(), [](const std::string& t) { return t.size() > 1; });
  LOAM_CHECK(model->ignore_merges || made == longer,
             "tokenizer: {} tokens are made by no merge, but tiktoken would make them of whole pieces", longer - made);
  std::string out;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!tokens[rank].empty()) out += fmt::format("{} {}\n", base64_encode(tokens[rank]), rank);
  }
  return out;
}

}  // namespace loam
