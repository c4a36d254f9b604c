# Run by cpack on the staged tree: what Debian's policy wants and other systems do not. Every time stamp becomes
# SOURCE_DATE_EPOCH, so that two packages of one source are the same bytes.
set(root ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
set(documents ${root}/doc/kvcal)
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  set(epoch $ENV{SOURCE_DATE_EPOCH})
else()
  string(TIMESTAMP epoch %s UTC)
  set(ENV{SOURCE_DATE_EPOCH} ${epoch})
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "'${ARGN}' ended with ${status}: ${output}")
  endif()
endfunction()

string(TIMESTAMP year %Y UTC)  # of SOURCE_DATE_EPOCH
# In C, so that months and days are spelled as the format wants.
execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C date -u -d @${epoch} "+%a, %d %b %Y %H:%M:%S +0000"
                OUTPUT_VARIABLE day OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${documents}/changelog
"kvcal (${CPACK_PACKAGE_VERSION}) unstable; urgency=low

  * Changes are in CHANGELOG.md.

 -- ${CPACK_PACKAGE_CONTACT}  ${day}
")
file(WRITE ${documents}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kvcal

Files: *
Copyright: ${year} the authors of kvcal
License: Apache-2.0
 On Debian systems the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
")
file(REMOVE ${documents}/LICENSE)
file(GLOB pages ${root}/man/man1/*.1)
run(gzip -9nf ${pages} ${documents}/changelog)
run(find ${CPACK_TEMPORARY_DIRECTORY} -exec touch --no-dereference -d @${epoch} {} +)
