# The include directory for users: <stretto/stretto.h>, <stretto/nn/transformer.h>, …, without other
# files of the repository. Contains links in a build directory, files below an installation prefix.

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/stretto)
foreach(name autograd core cuda music nn ops pretrained stretto.h stretto_music.h stretto_pretrained.h)
  set(link ${PROJECT_BINARY_DIR}/include/stretto/${name})
  if((name STREQUAL "cuda" AND NOT STRETTO_WITH_CUDA) OR (name MATCHES "music" AND NOT STRETTO_MUSIC) OR
     (name MATCHES "pretrained" AND NOT STRETTO_PRETRAINED))
    file(REMOVE ${link})
  else()
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${link} SYMBOLIC)
  endif()
endforeach()

function(stretto_include_dir target scope)
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()
