# Writes OUT with the version and the git commit of SOURCE; leaves an equal file alone.
set(commit "unknown")
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} describe --always --dirty --abbrev=12
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define LOAM_VERSION \"${VERSION}\"\n#define LOAM_COMMIT \"${commit}\"\n")
