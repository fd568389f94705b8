// The regular expressions of well-known vocabularies, in the texts under which tokenizer.json files and tiktoken write
// them. Each has a scanner of its own.
#pragma once

#include <string_view>

#define LOAM_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOAM_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LOAM_UPPER_NOT_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define LOAM_LOWER_NOT_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define LOAM_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LOAM_PREFIX R"([^\r\n\p{L}\p{N}]?)"
#define LOAM_WORDS LOAM_CONTRACTION "|" LOAM_PREFIX R"(\p{L}+)"
#define LOAM_CASE_RUNS(upper, lower, contraction) \
  LOAM_PREFIX upper "*" lower "+" contraction "|" LOAM_PREFIX upper "+" lower "*" contraction
#define LOAM_SIGNS R"(| ?[^\s\p{L}\p{N}]+)"
#define LOAM_BLANKS R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"

namespace loam::patterns {

inline constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kGpt2ByTiktoken =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
inline constexpr std::string_view kLlama3 = LOAM_WORDS R"(|\p{N}{1,3})" LOAM_SIGNS R"([\r\n]*)" LOAM_BLANKS;
inline constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|)"
    R"(\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
// As tiktoken writes it. In a tokenizer.json, {1,3}+ is not possessive: it takes any number of digits.
inline constexpr std::string_view kCl100kByTiktoken =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|)"
    R"(\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
// An earlier text of cl100k.
inline constexpr std::string_view kCl100kPossessive =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2 = LOAM_WORDS R"(|\p{N})" LOAM_SIGNS R"([\r\n]*)" LOAM_BLANKS;
inline constexpr std::string_view kQwen35 =
    LOAM_CONTRACTION "|" LOAM_PREFIX R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" LOAM_BLANKS;
inline constexpr std::string_view kBailingMoe =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
inline constexpr std::string_view kMiniCpm5 = LOAM_WORDS R"(|\p{N}+)" LOAM_SIGNS R"([\r\n]*)" LOAM_BLANKS;
inline constexpr std::string_view kSeedCoder = LOAM_WORDS R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" LOAM_BLANKS;
inline constexpr std::string_view kExaoneMoe = LOAM_CONTRACTION
    "|" LOAM_PREFIX R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})" LOAM_SIGNS R"([\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
inline constexpr std::string_view kO200k =
    LOAM_CASE_RUNS(LOAM_UPPER, LOAM_LOWER, LOAM_CONTRACTION "?") R"(|\p{N}{1,3})" LOAM_SIGNS R"([\r\n/]*)" LOAM_BLANKS;
inline constexpr std::string_view kYoutu =
    LOAM_CASE_RUNS(LOAM_UPPER, LOAM_LOWER, LOAM_CONTRACTION "?") R"(|\p{N})" LOAM_SIGNS R"([\r\n/]*)" LOAM_BLANKS;
inline constexpr std::string_view kTekken =
    LOAM_CASE_RUNS(LOAM_UPPER, LOAM_LOWER, "") R"(|\p{N})" LOAM_SIGNS R"([\r\n/]*)" LOAM_BLANKS;
inline constexpr std::string_view kKimi = R"([\p{Han}]+|)" LOAM_CASE_RUNS(
    LOAM_UPPER_NOT_HAN, LOAM_LOWER_NOT_HAN, LOAM_CONTRACTION "?") R"(|\p{N}{1,3})" LOAM_SIGNS R"([\r\n]*)" LOAM_BLANKS;

inline constexpr std::string_view kDeepSeekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" LOAM_BLANKS;
inline constexpr std::string_view kDigitGroups = R"(\d{1,3}(?=(?:\d{3})*\b))";
inline constexpr std::string_view kDigitGroupCuts = R"((?=(\d{3})+(?!\d)))";
inline constexpr std::string_view kNumberGroups = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";

// What BERT, and Hugging Face's pre-tokenizer Punctuation, call punctuation: Unicode's, and all of ASCII's.
inline constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";

}  // namespace loam::patterns

#undef LOAM_UPPER
#undef LOAM_LOWER
#undef LOAM_UPPER_NOT_HAN
#undef LOAM_LOWER_NOT_HAN
#undef LOAM_CONTRACTION
#undef LOAM_PREFIX
#undef LOAM_WORDS
#undef LOAM_CASE_RUNS
#undef LOAM_SIGNS
#undef LOAM_BLANKS
