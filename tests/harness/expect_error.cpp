#include "tests/harness/expect_error.h"

namespace loam::testing {

std::string error_of(ErrorCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error_code_name(error.code()), std::string(error_code_name(code))) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

::testing::AssertionResult throws_error(ErrorCode code, std::string_view part, const std::function<void()>& action) {
  const std::string said = error_of(code, action);
  if (said.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << said << "' does not hold '" << part << "'";
}

}  // namespace loam::testing
