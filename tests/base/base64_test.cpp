#include "loam/base/base64.h"

#include <gtest/gtest.h>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

// RFC 4648, section 10.
TEST(Base64, VectorsOfTheStandard) {
  const std::pair<const char*, const char*> vectors[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"},
  };
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
  EXPECT_EQ(base64_decode("+/+/"), "\xFB\xFF\xBF");
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Zg=", "Zg", "Z", "Zg===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9\n", "Zg==Zg==", "Zm\x80v"})
    EXPECT_LOAM_ERROR(base64_decode(text), ErrorCode::kBadFormat, "base64");
}

}  // namespace
}  // namespace loam
