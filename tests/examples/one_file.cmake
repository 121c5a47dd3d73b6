# Runs the single-file examples as a user would. The last output of each must match its says_NAME;
# says_melody is in tests/CMakeLists.txt.
if(STRETTO_EXAMPLES)
  set(says_attention_residuals "sum of all layers, [0-9]+ parameters: held out [0-9.]+.*over depth, [0-9]+ parameters: held out [0-9.]+")
  set(says_character_model "held out 0\\.[0-3].*That ")
  set(says_chorales "(9[0-9]|100) % of the generated chords")
  set(says_classifier "step 300 .*accuracy (9[0-9]|100)")
  set(says_conformer "(9[0-9]|100) of 100 melodies recognized")
  set(says_translation "held out: [89][0-9] of 90 right")
  set(says_fine_tuning "published +1\\.[56].*on twenty +1\\.[0-4].*from scratch +1\\.[7-9]")
  set(says_images "ViT, step 300: [^\n]*accuracy (9[0-9]|100).*Swin, step 300: [^\n]*accuracy (9[0-9]|100)")
  set(says_published_weights "loaded [0-9]+ of [0-9]+ tensors")
  set(says_microgpt "(3[5-9]|4[0-9]|50) of 50 samples")
  set(says_own_kernel "largest difference [0-9.]+e-0[5-9]")
  set(says_own_layer "step 150: loss [0-9.]+.*1 7 4 9 2 2 8 5 [|] 7 4 9 2 2 8 5")
  set(says_own_op "curvature")
  set(says_own_position "slope +\\[2\\]")
  set(says_resumed_training "resumed after step 200.*step 400: .*gcabfd sorted: abcdfg")
  set(says_use_checkpoint "loaded 30 of 30 tensors.*the ")
  # What runs before, in the same folder; and the arguments.
  set(before_resumed_training $<TARGET_FILE:resumed_training> 200)
  set(arguments_resumed_training 400)
  set(before_use_checkpoint $<TARGET_FILE:train_lm> --preset nano --tokens chars --held-out 0.01
      --steps 20 --out run)
  set(arguments_use_checkpoint run/checkpoint.safetensors)
  file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
  foreach(source ${examples})
    cmake_path(GET source STEM name)
    if(NOT DEFINED says_${name})
      message(FATAL_ERROR "tests/examples/one_file.cmake: add says_${name}, a regular expression for its output")
    endif()
    add_test(NAME example_${name}
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D SAYS=${says_${name}}
              -D "BEFORE=${before_${name}}" -D "ARGUMENTS=${arguments_${name}}"
              -P ${CMAKE_CURRENT_LIST_DIR}/one_file_run.cmake)
    # An unknown option ends the program before it trains or writes anything.
    add_test(NAME example_${name}_option COMMAND ${name} --epochs 3)
    set_tests_properties(example_${name}_option PROPERTIES
      PASS_REGULAR_EXPRESSION "\\[--epochs\\] is an unknown option or one argument too many")
    add_test(NAME example_${name}_help COMMAND ${name} --help)
    set_tests_properties(example_${name}_help PROPERTIES
      PASS_REGULAR_EXPRESSION "usage: .*${name} .*\\[--device cpu")
    set_tests_properties(example_${name} example_${name}_option example_${name}_help
      PROPERTIES LABELS examples)
  endforeach()
  # The recipe, with so few steps that no answer is right.
  add_test(NAME recipe_chat_from_scratch
    COMMAND bash ${PROJECT_SOURCE_DIR}/examples/recipes/chat_from_scratch.sh ${CMAKE_CURRENT_BINARY_DIR}/recipe)
  set_tests_properties(recipe_chat_from_scratch PROPERTIES
    LABELS examples
    PASS_REGULAR_EXPRESSION "0 of  60 answers are right.*0 of  36 answers are right.*Talk with it"
    ENVIRONMENT "PROGRAMS=$<TARGET_FILE_DIR:chat>;STEPS=2;CHAT_STEPS=2")
  # A file that an example cannot use ends it with one line and status 2.
  set(text ${CMAKE_CURRENT_BINARY_DIR}/one_file_text)
  file(WRITE ${text} "A few words.\n")
  foreach(name character_model fine_tuning use_checkpoint)
    add_test(NAME example_${name}_refuses
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D "SAYS=^[^\n]*${name}: [^\n]+\n$"
              -D ARGUMENTS=${text} -D STATUS=2 -P ${CMAKE_CURRENT_LIST_DIR}/one_file_run.cmake)
    set_tests_properties(example_${name}_refuses PROPERTIES LABELS examples)
  endforeach()
  foreach(file /nowhere/text /tmp /dev/null)
    add_test(NAME example_character_model_reads${file} COMMAND character_model ${file})
    set_tests_properties(example_character_model_reads${file} PROPERTIES
      PASS_REGULAR_EXPRESSION "character_model: ${file} cannot be read, or has less than 641 bytes"
      LABELS examples)
  endforeach()
  add_test(NAME example_pages
    COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR}
            -P ${CMAKE_CURRENT_LIST_DIR}/one_file_pages.cmake)
  set_tests_properties(example_pages PROPERTIES LABELS examples)
endif()
