# Writes OUT, a header that defines ASHLAR_COMMIT and its date: the commit of the folder SOURCE. An unchanged file keeps its time.
set(commit unknown)
set(date "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${git} -C ${SOURCE} log -1 "--format=%cd" "--date=format:%B %e, %Y" OUTPUT_VARIABLE date
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REPLACE "  " " " date "${date}")
    execute_process(COMMAND ${git} -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes
                    ERROR_QUIET)
    if(changes)
      string(APPEND commit +changes)
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ASHLAR_COMMIT \"${commit}\"\n#define ASHLAR_COMMIT_DATE \"${date}\"\n")
