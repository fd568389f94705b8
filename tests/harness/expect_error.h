#pragma once

#include <gtest/gtest.h>

#include <string>

#include "loam/base/error.h"

namespace loam::testing {

// Runs `action`, which must throw loam::Error{code}; gives its message, or "" (and a failure) if it does not.
template <class Action>
std::string error_of(ErrorCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error_code_name(error.code()), std::string(error_code_name(code))) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace loam::testing

// The statement throws loam::Error with this code, and its message holds `part`.
#define EXPECT_LOAM_ERROR(statement, code, part)                                                          \
  do {                                                                                                    \
    const std::string said = ::loam::testing::error_of(code, [&] { (void)(statement); });                 \
    EXPECT_NE(said.find(part), std::string::npos) << "'" << said << "' does not hold '" << (part) << "'"; \
  } while (false)
