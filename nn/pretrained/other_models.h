// T5 and BERT by the fields of their config.json; for nn/pretrained/pretrained.cpp.
#pragma once

#include "../files/name_map.h"
#include "../models/bert.h"
#include "../models/sequence_to_sequence.h"
#include "config_reader.h"

namespace stretto::nn::pretrained {

/// What a config.json determines of a T5.
struct T5Config {
  SequenceToSequence::Options options;  ///< Options of the model.
  NameMap names;                        ///< Names of its weights in the file.
};
/// Reads all fields that determine a T5, version 1.0 or 1.1.
T5Config t5_config(ConfigReader& config);

/// What a config.json determines of a BERT.
struct BertConfig {
  Bert::Options options;  ///< Options of the model.
  NameMap names;          ///< Names of its weights in the file.
};
/// Reads all fields that determine a BERT.
BertConfig bert_config(ConfigReader& config);

}  // namespace stretto::nn::pretrained
