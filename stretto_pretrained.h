// The component `pretrained`, with the framework: models, weights and tokenizers of other libraries,
// chat templates, adapters.
#pragma once

#include "pretrained/chat/chat_template.h"
#include "pretrained/chat/conversations.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/files/json_lines.h"
#include "pretrained/files/npy.h"
#include "pretrained/files/open_weights.h"
#include "pretrained/files/published_names.h"
#include "pretrained/files/pytorch/pytorch.h"
#include "pretrained/lora.h"
#include "pretrained/pretrained.h"
#include "pretrained/sentence_encoder.h"
#include "pretrained/tokenizers/subword_tokenizer.h"
#include "pretrained/tokenizers/train_bpe.h"
#include "stretto.h"
