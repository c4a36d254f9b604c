# `cpack -G DEB`: a Debian package whose dependencies are Debian's own, found by dpkg-shlibdeps.
# packaging/deb.sh builds and packs; packaging/try_deb.sh tries it where nothing of ours is installed.
set(CPACK_PACKAGE_NAME kvcal)
set(CPACK_PACKAGE_VENDOR kvcal)
set(CPACK_PACKAGE_CONTACT "kvcal maintainers <maintainers@kvcal.invalid>" CACHE STRING "Maintainer field of packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "calibrated FP8 KV-cache scales for Hugging Face checkpoints")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"kvcal turns a 16-bit Hugging Face checkpoint into one whose FP8 KV cache, and
where the recipe asks FP8 weights and activations, has calibrated scales that
serving engines read. It needs no Python, and memory for one layer at a time.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${KVCAL_PRIVATE_LIBRARIES})
if(TARGET MPI::MPI_CXX)
  # The library is a dependency, mpirun is not: the program runs without it on one machine, and srun starts ranks, too.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
endif()
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# What Debian wants otherwise than other systems do: compressed pages, its form of copyright and changelog.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian_files.cmake)
include(CPack)
