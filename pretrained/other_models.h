// Models that are not decoder-only, by the fields of their config.json, and Transformer-XL; for
// pretrained/pretrained.cpp.
#pragma once

#include "../nn/files/name_map.h"
#include "../nn/models/bert.h"
#include "../nn/models/language_model.h"
#include "../nn/models/sequence_to_sequence.h"
#include "files/json_reader.h"

namespace stretto::nn::pretrained {

using files::JsonReader;

/// What a config.json determines of a model M.
template <class M>
struct ModelConfig {
  typename M::Options options;  ///< Options of the model.
  NameMap names = {};           ///< Names of its weights in the file.
  int64_t max_length = 0;       ///< Trained length; 0: not limited by the configuration.
};

/// Reads all fields that determine a T5, version 1.0 or 1.1.
ModelConfig<SequenceToSequence> t5_config(JsonReader& config);
/// Reads all fields that determine a BERT.
ModelConfig<Bert> bert_config(JsonReader& config);
/// Reads all fields that determine a RoBERTa. Its positions begin after "pad_token_id".
ModelConfig<Bert> roberta_config(JsonReader& config);
/// Reads all fields that determine an MPNet. Its layers have learned positions and T5's biases.
ModelConfig<Bert> mpnet_config(JsonReader& config);
/// Reads all fields that determine a ModernBERT.
ModelConfig<Bert> modernbert_config(JsonReader& config);
/// Reads all fields that determine a DeBERTa of version 2 or 3. Token vectors of another width
/// than the layers are an error.
ModelConfig<Bert> deberta_config(JsonReader& config);
/// Reads all fields that determine a Transformer-XL of transformers 4. Its memory starts as zeros,
/// as there.
ModelConfig<LanguageModel> transformer_xl_config(JsonReader& config);

}  // namespace stretto::nn::pretrained
