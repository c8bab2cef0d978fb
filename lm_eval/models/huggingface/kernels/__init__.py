"""What torch does in several passes over a GPU's memory, in one.

Between its matrix products a model on a GPU does nothing but read and write memory, and each single
operation of torch goes over all of it. These kernels are compiled by Triton, which comes with the
CUDA builds of torch; each is tried against torch before it is used, and without it there is always
another way.
"""
