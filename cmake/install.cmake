# `cmake --install`: the program, its man pages and completions, recipes, data sets and sweeps, licence and documents.
if(SKBUILD)  # a wheel: what is shared goes to the environment's own share folder
  set(CMAKE_INSTALL_DATAROOTDIR ${SKBUILD_DATA_DIR}/share)
endif()
include(GNUInstallDirs)

# Pages and completions are made of the program's own options, so they cannot name another.
set(_shell_files ${PROJECT_BINARY_DIR}/shell_files)
add_custom_command(OUTPUT ${_shell_files}/made VERBATIM
  COMMAND ${CMAKE_COMMAND} -DKVCAL=$<TARGET_FILE:kvcal> -DOUTPUT=${_shell_files} -P ${PROJECT_SOURCE_DIR}/cmake/shell_files.cmake
  DEPENDS kvcal ${PROJECT_SOURCE_DIR}/cmake/shell_files.cmake COMMENT "Man pages and completions")
add_custom_target(shell_files ALL DEPENDS ${_shell_files}/made)

install(TARGETS kvcal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${_shell_files}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${_shell_files}/kvcal.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kvcal)
install(FILES ${_shell_files}/_kvcal DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${_shell_files}/kvcal.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY recipes datasets sweeps DESTINATION ${CMAKE_INSTALL_DATADIR}/kvcal)
if(NOT SKBUILD)  # a wheel has its licence among its metadata
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
