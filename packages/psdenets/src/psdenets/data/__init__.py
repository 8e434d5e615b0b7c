"""Load images and labels as tensors: readers, splits, augmentation."""

from psdenets.data.images import Images, Pool, Splits
from psdenets.data.sets import load_splits, load_test_images

__all__ = ["Images", "Pool", "Splits", "load_splits", "load_test_images"]
