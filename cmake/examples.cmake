# Builds the one-file examples, one program each, with an installed stretto:
#   cmake -S /usr/share/doc/stretto/examples -B examples && cmake --build examples
cmake_minimum_required(VERSION 3.25)
project(stretto_examples LANGUAGES CXX)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(stretto 0.3 REQUIRED COMPONENTS music pretrained)

file(GLOB sources CONFIGURE_DEPENDS *.cpp)
foreach(source ${sources})
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE stretto::music stretto::pretrained)
endforeach()
