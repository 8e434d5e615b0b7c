"""Images and labels as tensors: readers, splits, augmentation."""

from psdenets.data.images import Images, Splits
from psdenets.data.sets import load_splits, load_test_images

__all__ = ["Images", "Splits", "load_splits", "load_test_images"]
