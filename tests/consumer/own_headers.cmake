# Writes to OWN_HEADERS a header for every header of ROOT at the same path, and a few without their
# directories. Each defines only a variable of its own, e.g. own_core_shape_h = 1.

file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/autograd/*.h ${ROOT}/core/*.h ${ROOT}/cuda/*.h
     ${ROOT}/music/*.h ${ROOT}/nn/*.h ${ROOT}/ops/*.h ${ROOT}/pretrained/*.h)
foreach(header ${headers} stretto.h stretto_music.h stretto_pretrained.h tensor.h shape.h module.h attention.h)
  string(MAKE_C_IDENTIFIER own_${header} variable)
  file(WRITE ${OWN_HEADERS}/${header} "#pragma once\ninline constexpr int ${variable} = 1;\n")
endforeach()
