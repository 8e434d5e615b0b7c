"""Our filters against OpenCV's and scikit-image's, which the original generator uses. Skipped if those are missing."""

import numpy as np
import pytest

from bnneval.corruptions import CONSTANTS
from bnneval.corruptions.blur import disk, smooth
from bnneval.corruptions.colour import to_hsv, to_rgb
from bnneval.corruptions.digital import _affine, _through
from bnneval.corruptions.edges import box_blur, canny, distance_to, emboss, equalise


@pytest.fixture(scope="module")
def cv2():
    return pytest.importorskip("cv2")


def drops(seed):
    """A layer of liquid like the one in spatter, as bytes."""
    liquid = smooth(np.random.default_rng(seed).normal(0.65, 0.2, (32, 32)), 0.8)
    liquid[liquid < 0.7] = 0
    return (np.clip(liquid, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("seed", range(20))
def test_canny_distance_equalise_and_emboss_agree_with_opencv(cv2, seed):
    layer = drops(seed)
    edges = canny(layer, 50, 150)
    assert (edges == (cv2.Canny(layer, 50, 150) > 0)).all()
    theirs = cv2.distanceTransform(255 - 255 * edges.astype(np.uint8), cv2.DIST_L2, 5)
    ours = distance_to(edges, 20)
    assert np.abs(ours - np.minimum(theirs, 20)).max() < 1e-4  # 16-bit fixed point
    assert np.abs(box_blur(ours) - cv2.blur(ours, (3, 3))).max() < 1e-5
    height = box_blur(ours).astype(np.uint8)
    assert (equalise(height) == cv2.equalizeHist(height)).all()
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    assert (emboss(height) == cv2.filter2D(height, cv2.CV_8U, kernel)).all()


@pytest.mark.parametrize("constants", CONSTANTS["defocus_blur"])
def test_disk_agrees_with_a_disk_blurred_by_opencv(cv2, constants):
    radius, alias = constants
    x = np.arange(-8, 9)
    sharp = (x[:, None] ** 2 + x**2 <= radius**2).astype(np.float32)
    theirs = cv2.GaussianBlur(sharp / sharp.sum(), ksize=(3, 3), sigmaX=alias)
    assert np.abs(disk(radius, alias) - theirs).max() < 1e-7  # float32


def test_affine_warp_agrees_with_opencv_to_a_hundredth_of_a_level(cv2, photos):
    if int(cv2.__version__.split(".")[0]) > 4:
        pytest.skip("OpenCV 5 interpolates at exact positions; OpenCV 3 and 4, like ours, at multiples of 1/32")
    rng = np.random.default_rng(0)
    x = (photos[0] / 255).astype(np.float32)
    points = np.array([[26, 26], [26, 6], [6, 6]], dtype=np.float32)
    for _ in range(20):
        moved = points + rng.uniform(-2.5, 2.5, (3, 2)).astype(np.float32)
        matrix = cv2.getAffineTransform(points, moved)
        assert np.abs(matrix - _through(points, moved)).max() < 1e-6
        theirs = cv2.warpAffine(x, matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101)
        assert np.mean(np.abs(_affine(x, matrix) - theirs) * 255 < 0.01) > 0.99


def test_hsv_and_gaussian_agree_with_scikit_image(photos):
    color = pytest.importorskip("skimage.color")
    filters = pytest.importorskip("skimage.filters")
    x = photos[0] / 255
    assert (to_hsv(x) == color.rgb2hsv(x)).all()
    assert (to_rgb(to_hsv(x)) == color.hsv2rgb(color.rgb2hsv(x))).all()
    for sigma in (0.05, 0.4, 1.0):
        assert np.abs(smooth(x, sigma) - filters.gaussian(x, sigma=sigma, channel_axis=-1)).max() < 1e-15
