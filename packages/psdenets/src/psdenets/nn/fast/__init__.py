"""Faster versions of layers. Each has a plain equivalent; `switch` turns all of them off at once.

    switch      PSDENETS_PLAIN=1 selects the plain versions
    thin_conv   convolutions from or to at most three channels            plain: F.conv2d
    add_map     activation(x + m) with few passes over memory             plain: activation(x + m)
    compiled    the same by torch.compile (`--compile`)                   plain: activation(x + m)
    layout      images and their gradients channels last in memory        plain: unchanged

Plain and fast versions agree up to rounding. Layers choose one when they are constructed.
"""
