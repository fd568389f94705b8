# Compiler settings and the two functions that every layer uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -DLOAM_DEBUG")

find_program(LOAM_CCACHE ccache)
if(LOAM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOAM_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wshadow -Werror)
include_directories(${PROJECT_SOURCE_DIR})
if(LOAM_SANITIZE)
  add_compile_options(-fsanitize=${LOAM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOAM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # GCC 12 gives it falsely in instrumented code
  endif()
endif()
if(LOAM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_custom_target(loam_fuzzers)  # all of them
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# parallel_for runs on OpenMP, and on std::thread under ThreadSanitizer, which does not understand libgomp.
if(LOAM_SANITIZE MATCHES "thread")
  add_compile_definitions(LOAM_STD_THREADS)
else()
  find_package(OpenMP REQUIRED)
endif()

# loam_layer(NAME SOURCES a.cpp ... [LAYERS base ...] [LIBS system libraries ...])
function(loam_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBS" ${ARGN})
  list(TRANSFORM ARG_LAYERS PREPEND loam_)
  add_library(loam_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(loam_${name} PUBLIC fmt::fmt Threads::Threads ${ARG_LAYERS} PRIVATE ${ARG_LIBS})
endfunction()

# loam_test(NAME SOURCES a_test.cpp ... LAYERS ... [LABELS fast]): one GoogleTest program, each of its cases a CTest test.
function(loam_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  list(TRANSFORM ARG_LAYERS PREPEND loam_)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LAYERS} ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LOAM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()

# loam_fuzz(NAME SOURCES a_fuzz.cpp LAYERS ...): a libFuzzer target, built only by the fuzz preset.
function(loam_fuzz name)
  if(LOAM_FUZZ)
    cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS" ${ARGN})
    list(TRANSFORM ARG_LAYERS PREPEND loam_)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LAYERS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(loam_fuzzers ${name})
  endif()
endfunction()
