import torch

import stretto

stretto.set_num_threads(2)
torch.set_num_threads(1)  # its tensors here are small
