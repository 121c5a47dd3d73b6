/// @mainpage
/// The reference by topic: @ref tensors, @ref ops, @ref autograd, @ref modules, @ref positions, @ref attention,
/// @ref models, @ref data, @ref training, @ref distributed, @ref files, @ref music, @ref pretrained. A topic lists its functions and classes;
/// a class lists its members. The search field above finds names.
///
/// Often needed: stretto::Tensor, stretto::nn::Module, stretto::nn::MultiHeadAttention,
/// stretto::nn::PositionalEncoding, stretto::nn::LanguageModel, stretto::nn::Trainer.

/// @defgroup tensors Tensors
/// Tensors, devices, dtypes, random numbers, creation, views and indexing.
/// @defgroup ops Ops
/// Differentiable functions of tensors.
/// @defgroup autograd Autograd
/// Gradients: recording ops, backward passes, recomputation, profiling, gradient checks.
/// @defgroup modules Modules
/// Layers and the base class of everything with parameters.
/// @defgroup positions Positions
/// Positional encodings: relative tables and biases, rotations, stochastic encodings.
/// @defgroup attention Attention
/// Softmax and linear attention, masks, feature maps and key-value caches.
/// @defgroup models Models
/// Complete models, generation and beam search.
/// @defgroup data Data
/// Tokens of bytes, characters and words, token streams and batches.
/// @defgroup training Training
/// Optimizers, schedules, the training loop, checkpoints and metrics.
/// @defgroup distributed Distributed training
/// Process groups, data parallelism and sequence parallelism.
/// @defgroup files Files
/// Safetensors, GGUF, PyTorch and NumPy files, weights and the names of published models.
/// @defgroup music Music
/// The component music: MIDI files, tokens of music, chords, infilling.
/// @defgroup pretrained Pretrained models
/// The component pretrained: models, tokenizers and adapters of other libraries, chat templates.

/// @namespace stretto
/// Tensors, ops and autograd.
/// @namespace stretto::music
/// MIDI files and tokens of music.
/// @namespace stretto::nn
/// Modules, models, data and training.
