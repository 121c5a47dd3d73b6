/// @mainpage
/// The reference by topic: @ref tensors, @ref ops, @ref autograd, @ref modules, @ref positions, @ref attention,
/// @ref models, @ref data, @ref music, @ref training, @ref distributed, @ref files. A topic lists its functions and classes;
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
/// Tokenizers, token streams and batches.
/// @defgroup music Music
/// MIDI files, tokens of music, chords, infilling.
/// @defgroup training Training
/// Optimizers, schedules, the training loop, checkpoints and metrics.
/// @defgroup distributed Distributed training
/// Process groups, data parallelism and sequence parallelism.
/// @defgroup files Files
/// Safetensors, GGUF and PyTorch files, weights and the names of published models.

/// @namespace stretto
/// Tensors, ops and autograd.
/// @namespace stretto::music
/// MIDI files and tokens of music.
/// @namespace stretto::nn
/// Modules, models, data and training.
