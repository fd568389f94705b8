// The files of tests/fixtures/import are numpy's own.
#include "loam/data/import.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "loam/base/json.h"
#include "loam/base/log.h"
#include "loam/data/tokenize.h"
#include "loam/text/tokenizer_files.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using Ids = std::vector<int32_t>;
using Documents = std::vector<Ids>;

Path fixture(const std::string& name) { return testing::source_path("tests/fixtures/import") / name; }

const Ids kIds{5, 6, 7, 90, 1, 90, 11, 12, 13, 14, 90};
const Documents kDocuments{{5, 6, 7, 90}, {1, 90}, {11, 12, 13, 14, 90}};

Documents documents_of(const Path& directory) {
  const TokenSet set(directory);
  set.verify();
  Documents documents;
  for (int64_t d = 0; d < set.info().documents; ++d) {
    documents.emplace_back(static_cast<size_t>(set.document_begin(d + 1) - set.document_begin(d)));
    set.read(set.document_begin(d), documents.back());
  }
  return documents;
}

Ids joined(const Documents& documents) {
  Ids all;
  for (const Ids& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

class Import : public ::testing::Test {
 protected:
  Import() { set_log_level(LogLevel::kError); }
  ~Import() override { set_log_level(LogLevel::kInfo); }

  template <class T>
  Path file(const std::string& name, const std::vector<T>& ids, size_t cut = 0) const {
    const Path path = directory_ / name;
    write_file_atomic(path, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T) - cut});
    return path;
  }
  SplitWriter::Result import(const std::vector<Path>& inputs, int64_t vocab_size = 91, int32_t end_of_text = 90) {
    options_.inputs = inputs;
    options_.force = true;
    return import_tokens(nullptr, {"", vocab_size, end_of_text, 0, 0, 0}, options_, out_);
  }
  Documents imported(const std::vector<Path>& inputs, int64_t vocab_size = 91, int32_t end_of_text = 90) {
    import(inputs, vocab_size, end_of_text);
    return documents_of(out_ / "train");
  }

  testing::TempDir directory_;
  const Path out_ = directory_ / "out";
  ImportOptions options_;
};

TEST_F(Import, WhatNumpySaves) {
  for (const char* type : {"u2", "u4", "i4", "i8"}) {
    for (const int version : {1, 2, 3}) {
      const Path path = fixture(fmt::format("{}_v{}.npy", type, version));
      for (const auto format : {TokenFileFormat::automatic, TokenFileFormat::npy}) {
        options_.format = format;
        EXPECT_EQ(imported({path}), kDocuments) << path;
      }
    }
  }
  EXPECT_EQ(imported({fixture("default.npy")}), kDocuments);
}

TEST_F(Import, FlatFiles) {
  Documents eight;
  for (int i = 0; i < 8; ++i) eight.insert(eight.end(), kDocuments.begin(), kDocuments.end());
  EXPECT_EQ(imported({fixture("u16.bin")}), eight);
  EXPECT_EQ(imported({fixture("u32.bin")}), eight);  // seen by its zeros
  options_.format = TokenFileFormat::bin_u32;
  EXPECT_EQ(imported({fixture("u32.bin")}), eight);
  options_.format = TokenFileFormat::bin_u16;
  EXPECT_EQ(imported({fixture("u16.bin")}), eight);
  options_.format = TokenFileFormat::automatic;
  // A larger vocabulary does not go into 16 bits.
  EXPECT_EQ(imported({file<uint32_t>("large.bin", {70'000, 3, 5})}, 70'001, 3), (Documents{{70'000, 3}, {5}}));
  // Without ids between documents a file is one.
  EXPECT_EQ(imported({file<uint16_t>("a.bin", {1, 2, 3}), file<uint16_t>("b.bin", {4})}, 91, -1),
            (Documents{{1, 2, 3}, {4}}));
  options_.document_token = 2;
  EXPECT_EQ(imported({directory_ / "a.bin"}, 91, -1), (Documents{{1, 2}, {3}}));
}

TEST_F(Import, LlmcAndDocumentsThatBeginWithTheEndOfText) {
  const Documents expected{{50256, 15496, 995}, {50256, 40, 716}};
  EXPECT_EQ(imported({fixture("gpt2.bin")}, 50257, 50256), expected);
  EXPECT_EQ(imported({fixture("memmap.bin")}, 50257, 50256), expected);
  EXPECT_EQ(imported({fixture("llama3.bin")}, 128'256, 128'000),
            (Documents{{128'000, 9906}, {128'000, 1917}, {128'000}}));
  // Parts of one stream: what a part ends with goes on in the next. Other files are whole.
  const Path rest = directory_ / "rest.bin";
  std::string bytes = read_file(fixture("gpt2.bin"));
  const uint16_t changed = 7;
  std::memcpy(bytes.data() + 1024, &changed, 2);
  write_file_atomic(rest, bytes);
  EXPECT_EQ(imported({fixture("gpt2.bin"), rest}, 50257, 50256),
            (Documents{{50256, 15496, 995}, {50256, 40, 716, 7, 15496, 995}, {50256, 40, 716}}));
  EXPECT_EQ(imported({fixture("memmap.bin"), file<uint16_t>("more.bin", {7, 8})}, 50257, 50256),
            (Documents{{50256, 15496, 995}, {50256, 40, 716}, {7, 8}}));
}

// An import of what `data tokenize` makes is the same directory, to the byte: bytes of text and all.
TEST_F(Import, TokensWithTheirTokenizerMakeTheSameDirectory) {
  const Tokenizer tokenizer(make_bpe_model({{'t', 'h'}, {256, 'e'}}, {"<|endoftext|>"}, Pretokenizer::gpt2()));
  std::string lines;
  for (const char* text : {"the cat", "x",
                           "Gr\xC3\xBC\xC3\x9F"
                           "e <|endoftext|> the the",
                           "\n"}) {
    lines += Json(Json::Object{{"text", text}}).dump() + "\n";
  }
  write_file_atomic(directory_ / "d.jsonl", lines);
  TokenizeOptions tokenize;
  tokenize.inputs = {directory_ / "d.jsonl"};
  tokenize_documents(tokenizer, tokenize, directory_ / "tokenized");
  const Ids ids = joined(documents_of(directory_ / "tokenized/train"));
  options_.inputs = {file("ids.bin", std::vector<uint16_t>(ids.begin(), ids.end()))};
  import_tokens(&tokenizer, {}, options_, out_);
  for (const char* name : {"train/index.json", "train/shard-00000.tok", "tokenizer.json"}) {
    EXPECT_EQ(read_file(out_ / name), read_file(directory_ / "tokenized" / name)) << name;
  }
  EXPECT_EQ(TokenSet(out_ / "train").info().text_bytes, 7 + 1 + 29 + 1);
}

TEST_F(Import, ValidationIsGivenOrChosen) {
  options_.val_inputs = {fixture("u4_v1.npy")};
  EXPECT_EQ(imported({fixture("u16.bin")}).size(), 24u);
  EXPECT_EQ(documents_of(out_ / "val"), kDocuments);
  options_.val_inputs.clear();

  std::vector<uint16_t> ids;
  for (int i = 0; i < 1000; ++i) {
    for (const int id : {i % 80, i / 80, 90}) ids.push_back(static_cast<uint16_t>(id));
  }
  options_.val_fraction = 0.25;
  const Documents train = imported({file("many.bin", ids)}), val = documents_of(out_ / "val");
  EXPECT_EQ(train.size() + val.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(val.size()), 250, 6 * 13.7);  // deviation sqrt(1000 * 0.25 * 0.75)
  // The same documents in another order fall on the same sides.
  std::reverse(ids.begin(), ids.end());
  std::rotate(ids.begin(), ids.begin() + 1, ids.end());  // the ends behind the documents again
  for (size_t i = 0; i < ids.size(); i += 3) std::swap(ids[i], ids[i + 1]);
  Documents again = imported({file("turned.bin", ids)});
  const auto sorted = [](Documents all) {
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(sorted(again), sorted(train));
  EXPECT_EQ(sorted(documents_of(out_ / "val")), sorted(val));

  // Of one document the end is cut off; of two one moves.
  EXPECT_EQ(imported({file<uint16_t>("one.bin", {1, 2, 3, 4, 5, 6, 7, 90})}), (Documents{{1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(documents_of(out_ / "val"), (Documents{{7, 90}}));
  options_.val_fraction = 1e-9;
  EXPECT_EQ(imported({file<uint16_t>("two.bin", {1, 90, 2, 90})}).size(), 1u);
  EXPECT_EQ(documents_of(out_ / "val").size(), 1u);
  // All copies of the one that moves go with it, wherever they lie; only where there is no other they part.
  const Documents copies{{1, 90}, {2, 90}, {1, 90}, {2, 90}, {2, 90}, {1, 90}};
  std::vector<uint16_t> repeated;
  for (const int32_t id : joined(copies)) repeated.push_back(static_cast<uint16_t>(id));
  const Documents stay = imported({file("copies.bin", repeated)}), moved = documents_of(out_ / "val");
  EXPECT_EQ(stay, Documents(3, stay[0]));
  EXPECT_EQ(moved, Documents(3, moved[0]));
  EXPECT_NE(stay[0], moved[0]);
  EXPECT_EQ(imported({file<uint16_t>("equal.bin", {1, 90, 1, 90, 1, 90})}).size(), 2u);
  EXPECT_EQ(documents_of(out_ / "val").size(), 1u);
  EXPECT_LOAM_ERROR(import({file<uint16_t>("tiny.bin", {1})}), ErrorCode::kInvalidArgument, "cannot be cut");
}

// A stream without ends of documents, in pieces of 100 ids: of each a fifth goes to validation, of the last one of 5
// a single id.
TEST_F(Import, PiecesOfALongDocumentAreCutByTheFraction) {
  std::vector<uint16_t> ids;
  for (int i = 0; i < 1005; ++i) ids.push_back(static_cast<uint16_t>(i % 80));
  const Path stream = file("stream.bin", ids);
  options_.longest_document = 100;
  options_.val_fraction = 0.2;
  const SplitWriter::Result parts = import({stream});
  EXPECT_EQ(parts.train.tokens, 804);
  EXPECT_EQ(parts.val.tokens, 201);
  const Documents val = documents_of(out_ / "val");
  ASSERT_EQ(val.size(), 11u);
  EXPECT_EQ(val[1], (Ids{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39}));
  // A document of just that length is whole.
  ids.assign(100, 3);
  ids.back() = 90;
  options_.val_fraction = 0;
  EXPECT_EQ(imported({file("whole.bin", ids)}), (Documents{Ids(ids.begin(), ids.end())}));
}

TEST_F(Import, TextIsNotTakenForIds) {
  for (const std::string text : {"{\"text\": \"a line\"}\n", "zw\xC3\xB6lf, na\xC3\xAFve\r\n\tx", "ab\xC3"}) {
    const Path path = directory_ / "corpus.jsonl";
    write_file_atomic(path, text);
    options_.format = TokenFileFormat::automatic;
    EXPECT_LOAM_ERROR(import({path}, 65536), ErrorCode::kBadFormat, "corpus.jsonl: looks like text");
    if (text.size() % 2 != 0) continue;
    options_.format = TokenFileFormat::bin_u16;
    EXPECT_EQ(import({path}, 65536).train.tokens, static_cast<int64_t>(text.size() / 2));
  }
  std::filesystem::create_directory(directory_ / "many");
  for (const char* name : {"many/b.npy", "many/a.bin", "many/LICENSE", "many/corpus.jsonl"}) {
    write_file_atomic(directory_ / name, "some text");
  }
  const std::string many = (directory_ / "many").string();
  EXPECT_EQ(token_files_of(many), (std::vector<Path>{directory_ / "many/a.bin", directory_ / "many/b.npy"}));
  EXPECT_EQ(token_files_of(many + "/LICENSE"), (std::vector<Path>{directory_ / "many/LICENSE"}));
  std::filesystem::remove(directory_ / "many/a.bin");
  std::filesystem::remove(directory_ / "many/b.npy");
  EXPECT_LOAM_ERROR(token_files_of(many), ErrorCode::kNotFound, "many: holds no .bin and no .npy");
}

TEST_F(Import, SaysWhatItTakesFilesFor) {
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  imported({fixture("u2_v1.npy"), fixture("u2_v2.npy"), fixture("u16.bin")});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("2 files: npy, uint16, 22 tokens"), log.npos) << log;
  const auto size = std::filesystem::file_size(fixture("u16.bin"));
  EXPECT_NE(log.find(fmt::format("u16.bin: flat, uint16, {} tokens", size / 2)), log.npos) << log;
}

TEST_F(Import, MoreFilesThanMayBeOpen) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<Path> files;
  for (int i = 0; i < 100; ++i) files.push_back(file<uint16_t>(fmt::format("{:03}.bin", i), {1, 2, 90}));
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW(EXPECT_EQ(imported(files).size(), 100u));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Import, WhatIsWrongIsNamed) {
  const auto refused = [&](const Path& path, const std::string& message) {
    EXPECT_LOAM_ERROR(import({path}), ErrorCode::kBadFormat, path.string() + ": " + message);
  };
  refused(fixture("fortran.npy"), "a .npy of 2 axes");
  refused(fixture("scalar.npy"), "a .npy of 0 axes");
  refused(fixture("big_endian.npy"), "a .npy of type '>u2'");
  refused(fixture("float.npy"), "a .npy of type '<f4'");
  refused(fixture("records.npy"), "the header of this .npy: it holds records");
  // As numpy.save writes np.array([3, -2], "<i4"): 118 bytes of dictionary behind the 10 of the front.
  std::string small = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
  small.resize(117, ' ');
  small = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + small + '\n' + std::string("\3\0\0\0\xFE\xFF\xFF\xFF", 8);
  write_file_atomic(directory_ / "i4.npy", small);
  refused(directory_ / "i4.npy", "the id at 1 is negative: -2");
  refused(fixture("negative.npy"), "the id at 1 is negative: -1");
  refused(file<uint16_t>("out.bin", {1, 2, 91}), "the id at 2 is 91, outside the vocabulary of 91");
  refused(file<uint16_t>("odd.bin", {1, 2, 3}, 1), "5 bytes are no whole number of ids of 2 bytes");
  const std::string npy = read_file(fixture("u2_v1.npy")), llmc = read_file(fixture("gpt2.bin"));
  const auto changed = [&](const std::string& name, std::string bytes) {
    write_file_atomic(directory_ / name, bytes);
    return directory_ / name;
  };
  refused(changed("cut.npy", npy.substr(0, npy.size() - 1)), "149 bytes, but its header says 11 ids of 2 bytes");
  refused(changed("long.npy", npy + "x"), "151 bytes, but its header says 11 ids");
  refused(changed("header.npy", npy.substr(0, 60)), "a .npy that is cut off in its header");
  refused(changed("start.npy", npy.substr(0, 9)), "a .npy that is cut off in its header");
  std::string version = npy;
  version[6] = 4;
  refused(changed("version.npy", version), "a .npy of version 4.0");
  refused(changed("cut.bin", llmc.substr(0, llmc.size() - 2)), "1034 bytes, but its header says 6 ids of 2 bytes");
  refused(changed("short.bin", llmc.substr(0, 100)), "100 bytes, too short for llm.c's header");
  version = llmc;
  version[4] = 2;
  refused(changed("version.bin", version), "a token file of llm.c of version 2; known is 1");
  options_.format = TokenFileFormat::npy;
  refused(fixture("u16.bin"), "not a .npy file");
  options_.format = TokenFileFormat::llmc;
  refused(fixture("u16.bin"), "not a token file of llm.c");
  options_.format = TokenFileFormat::automatic;
  EXPECT_LOAM_ERROR(import({directory_ / "none.bin"}), ErrorCode::kNotFound, "none.bin");
  EXPECT_LOAM_ERROR(import({directory_.path()}), ErrorCode::kInvalidArgument, "not a regular file");
  EXPECT_LOAM_ERROR(import({fixture("empty.npy")}), ErrorCode::kInvalidArgument, "no documents");
  EXPECT_FALSE(std::filesystem::exists(out_));

  imported({fixture("u2_v1.npy")});
  refused(out_ / "train/shard-00000.tok", "a token shard of loam");
  EXPECT_EQ(documents_of(out_ / "train"), kDocuments);  // what was there stays
  options_.force = false;
  options_.inputs = {fixture("u2_v1.npy")};
  EXPECT_LOAM_ERROR(import_tokens(nullptr, {"", 91, 90, 0, 0, 0}, options_, out_), ErrorCode::kAlreadyExists, "out");
}

// Headers that Python would read, and that it would not.
TEST(TokenFileLayout, DictionariesOfPython) {
  const auto layout = [](const std::string& dictionary, int64_t ids = 3) {
    std::string front = std::string("\x93NUMPY\x01\x00", 8);
    const auto length = static_cast<uint16_t>(dictionary.size());
    front.append(reinterpret_cast<const char*>(&length), 2);
    front += dictionary;
    const auto size = static_cast<int64_t>(front.size()) + 2 * ids;
    return token_file_layout(front, size, TokenFileFormat::npy, 100, "x.npy");
  };
  for (const char* dictionary : {"{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }   \n",
                                 "{'shape':(3,),'fortran_order':True,'descr':\"<u2\"}",
                                 "{ 'descr' : '<u2' , 'fortran_order' : False , 'shape' : ( 3L , ) }"}) {
    EXPECT_EQ(layout(dictionary), (TokenFileLayout{10 + static_cast<int64_t>(std::strlen(dictionary)), 3, 2}));
  }
  for (const char* dictionary :
       {"", "{", "{}", "{'descr': '<u2'}", "{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<u2', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3,)} x",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), 'more': 1}", "{'descr': '<u2",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807,)}"}) {
    EXPECT_LOAM_ERROR(layout(dictionary), ErrorCode::kBadFormat, "x.npy: ");
  }
}

}  // namespace
}  // namespace loam
