"""Each corruption against numbers derived from its constants: variances, kernels, colour means, JPEG tables."""

import io

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

import bnneval
from bnneval.corruptions import BENCHMARK, CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt
from bnneval.corruptions.blur import blur_along, disk, offsets, taps, zoom_matrix
from bnneval.corruptions.colour import to_hsv, to_rgb
from bnneval.corruptions.digital import _affine, _through, elastic_transform
from bnneval.corruptions.edges import canny, distance_to, emboss, equalise
from bnneval.corruptions.weather import Fall, flakes, plasma


def flat(level, n=1):
    return np.full((n, 32, 32, 3), level, dtype=np.uint8)


def spot(at=(16, 16), level=255):
    image = flat(0)
    image[0, at[0], at[1]] = level
    return image


def test_there_are_fifteen_plus_four_corruptions_of_five_severities():
    assert len(CORRUPTIONS) == len(set(CORRUPTIONS)) == 19
    assert BENCHMARK[-1] == "jpeg_compression"
    assert set(CORRUPTIONS) - set(BENCHMARK) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}
    assert all(len(rows) == 5 for rows in CONSTANTS.values())
    assert bnneval.CORRUPTIONS is CORRUPTIONS


def test_results_are_pinned_so_that_no_refactoring_changes_them_unnoticed(photos):
    # Mean absolute change in levels of eight synthetic images, seed 0, severity 3.
    measured = {n: round(float(np.abs(corrupt(photos, n, 3).astype(int) - photos).mean()), 2) for n in CORRUPTIONS}
    assert measured == pytest.approx(PINNED, abs=0.05)


PINNED = {
    "gaussian_noise": 15.75,
    "shot_noise": 14.25,
    "impulse_noise": 4.05,
    "defocus_blur": 2.55,
    "glass_blur": 4.39,
    "motion_blur": 4.94,
    "zoom_blur": 4.3,
    "snow": 29.98,
    "frost": 54.92,
    "fog": 23.65,
    "brightness": 25.26,
    "contrast": 14.92,
    "elastic_transform": 5.55,
    "pixelate": 1.74,
    "jpeg_compression": 7.03,
    "speckle_noise": 12.74,
    "gaussian_blur": 3.14,
    "spatter": 5.9,
    "saturate": 17.02,
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_memory_layout_does_not_matter(name, photos):
    planar = np.ascontiguousarray(photos[:2].transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert (corrupt(planar, name, 2) == corrupt(photos[:2], name, 2)).all()


# Noise. 256 uniform images are 786,432 values: the standard error of a variance is 0.16 %, so 1 % is six of them.
@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_has_its_variance_and_truncation_darkens_by_half_a_level(severity):
    sigma = [0.04, 0.06, 0.08, 0.09, 0.10][severity - 1]
    noisy = corrupt(flat(128, 256), "gaussian_noise", severity).astype(float)
    # Truncation to integer levels adds the variance of a uniform number, 1/12, and subtracts 1/2 from the mean.
    assert noisy.var() == pytest.approx((255 * sigma) ** 2 + 1 / 12, rel=0.01)
    assert noisy.mean() == pytest.approx(127.5, abs=6 * 255 * sigma / np.sqrt(noisy.size))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_shot_noise_has_the_poisson_variance_of_its_photons(severity):
    photons = [500, 250, 100, 75, 50][severity - 1]
    k = np.arange(1000)
    chance, level = stats.poisson.pmf(k, photons * 100 / 255), np.floor(255 * np.minimum(k / photons, 1))
    mean = chance @ level
    variance = chance @ (level - mean) ** 2
    assert variance == pytest.approx(255 * 100 / photons, rel=0.05)  # the Poisson variance, apart from truncation
    noisy = corrupt(flat(100, 256), "shot_noise", severity).astype(float)
    assert noisy.mean() == pytest.approx(mean, abs=6 * np.sqrt(variance / noisy.size))
    assert noisy.var() == pytest.approx(variance, rel=0.01)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_replaces_its_share_of_values_half_with_black_half_with_white(severity):
    amount = [0.01, 0.02, 0.03, 0.05, 0.07][severity - 1]
    noisy = corrupt(flat(128, 256), "impulse_noise", severity)
    error = 5 * np.sqrt(amount / 2 / noisy.size)  # five standard errors
    assert np.mean(noisy == 0) == pytest.approx(amount / 2, abs=error)
    assert np.mean(noisy == 255) == pytest.approx(amount / 2, abs=error)
    assert set(np.unique(noisy)) == {0, 128, 255}


@pytest.mark.parametrize("severity", SEVERITIES)
def test_speckle_noise_grows_with_the_signal(severity):
    sigma = [0.06, 0.1, 0.12, 0.16, 0.2][severity - 1]
    for level in (40, 120):
        noisy = corrupt(flat(level, 256), "speckle_noise", severity).astype(float)
        assert noisy.var() == pytest.approx((level * sigma) ** 2 + 1 / 12, rel=0.012)


# Blurs.
@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_of_a_spot_is_the_gaussian(severity):
    sigma = [0.4, 0.6, 0.7, 0.8, 1.0][severity - 1]
    reach = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weights /= weights.sum()
    blurred = corrupt(spot(), "gaussian_blur", severity)[0, :, :, 1]
    window = slice(16 - reach, 17 + reach)
    expected = np.outer(weights, weights) * 255
    assert (blurred[window, window] == (expected + 1e-9).astype(np.uint8)).all()
    assert blurred.astype(int).sum() == blurred[window, window].astype(int).sum()


def test_disks_of_the_five_severities_have_the_right_pixels():
    for (radius, alias), pixels in zip(CONSTANTS["defocus_blur"], (1, 1, 1, 5, 9), strict=True):
        kernel = disk(radius, alias)
        assert kernel.shape == (17, 17)
        assert kernel.sum() == pytest.approx(1, abs=1e-6)  # float32
        tap = np.exp(-0.5 / alias**2)
        centre = 1 / (1 + 2 * tap)  # the middle of three Gaussian taps
        if pixels == 1:
            assert kernel[8, 8] == pytest.approx(centre**2, abs=1e-6)
            assert kernel[8, 9] == pytest.approx(centre**2 * tap, abs=1e-6)
        else:
            assert kernel[8, 8] == pytest.approx(1 / pixels, abs=1e-4)


def test_defocus_blur_of_a_spot_is_the_disk():
    blurred = corrupt(spot(), "defocus_blur", 5)[0, 8:25, 8:25, 0]
    assert (blurred == (disk(1.5, 0.1) * 255).astype(np.uint8)).all()


def test_glass_blur_moves_every_pixel_by_at_most_one_up_and_left():
    # Severity 1 blurs with sigma 0.05, so not at all; each pixel reads itself or a neighbour above or to the left.
    row, column = np.mgrid[:32, :32]
    image = np.stack([row * 8, column * 8, np.full_like(row, 200)], axis=-1).astype(np.uint8)[None]
    moved = corrupt(image, "glass_blur", 1)[0].astype(int) // 8
    dy, dx = row - moved[..., 0], column - moved[..., 1]
    assert set(np.unique(dy[2:, 2:])) == {0, 1}
    assert set(np.unique(dx[2:, 2:])) == {0, 1}
    assert (dy[:2] == 0).all()
    assert (dx[:, :2] == 0).all()
    # 900 fair coins: a mean that differs from 1/2 by 0.08 is 5 standard deviations off.
    assert abs(dy[2:, 2:].mean() - 0.5) < 0.08


def test_glass_blur_equals_the_original_loop_over_pixels():
    # From the last pixel back, one pixel after another, with the same offsets.
    image = np.random.default_rng(1).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    rng = np.random.default_rng([0, CORRUPTIONS.index("glass_blur"), 4, 0])
    x = (ndimage.gaussian_filter(image[0] / 255, (0.25, 0.25, 0), mode="nearest") * 255).astype(np.uint8)
    for _ in range(2):
        for h in range(31, 1, -1):
            for w in range(31, 1, -1):
                dx, dy = rng.integers(-1, 1, size=2)
                x[h, w] = x[h + dy, w + dx]
    expected = (ndimage.gaussian_filter(x / 255, (0.25, 0.25, 0), mode="nearest") * 255).astype(np.uint8)
    assert (corrupt(image, "glass_blur", 4)[0] == expected).all()


def test_motion_taps_are_half_a_gaussian_of_length_twice_the_radius_plus_one():
    for radius, sigma in CONSTANTS["motion_blur"]:
        weights = taps(radius, sigma)
        assert len(weights) == 2 * radius + 1
        assert weights.sum() == pytest.approx(1, abs=1e-15)
        assert weights[3] / weights[0] == pytest.approx(np.exp(-9 / (2 * sigma**2)), abs=1e-15)


def test_motion_offsets_run_along_the_angle():
    assert offsets(4, 0) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert offsets(4, 90) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert offsets(4, -90) == [(0, 0), (-1, 0), (-2, 0), (-3, 0)]
    # 45 degrees: i / sqrt 2 = 0, 0.71, 1.41, 2.12
    assert offsets(4, 45) == [(0, 0), (1, 1), (1, 1), (2, 2)]


def test_motion_blur_at_angle_zero_smears_a_spot_to_the_left_and_repeats_the_border():
    # Pixel x reads x, x + 1, ..., so the spot at column 16 spreads to columns below 16.
    blurred = blur_along(spot()[0], 6, 2.0, 0.0)[16, :, 0].astype(int)
    weights = taps(6, 2.0)
    assert blurred[16 - 12 : 17].tolist() == np.floor(weights[::-1] * 255 + 0.5).astype(int).tolist()
    assert blurred[17:].sum() == 0
    assert (blur_along(flat(77)[0], 9, 2.5, 33.0) == 77).all()


def test_zoom_factors_count_7_12_16_21_26():
    assert [len(np.arange(1, end, 0.01)) for (end,) in CONSTANTS["zoom_blur"]] == [7, 12, 16, 21, 26]


@pytest.mark.parametrize("factor", [1.01, 1.05, 1.2, 1.25, 1.75, 2.25])
@pytest.mark.parametrize("side", [17, 32, 40])
def test_zoom_matrix_equals_scipys_linear_zoom_of_the_crop(factor, side):
    line = np.random.default_rng(0).random(side)
    crop = int(np.ceil(side / factor))
    first = (side - crop) // 2
    stretched = ndimage.zoom(line[first : first + crop], factor, order=1)
    trim = (len(stretched) - side) // 2
    assert np.allclose(zoom_matrix(side, factor) @ line, stretched[trim : trim + side], atol=1e-12)


# Weather.
def test_plasma_fills_the_unit_interval_and_slow_decay_is_rougher():
    smooth, rough = (plasma(32, decay, np.random.default_rng(3)) for decay in (3.0, 1.75))
    for height in (smooth, rough):
        assert (height.min(), height.max()) == (0, 1)
    assert np.abs(np.diff(rough, axis=0)).mean() > 1.5 * np.abs(np.diff(smooth, axis=0)).mean()


def test_plasma_starts_with_the_centre_and_the_edges_of_one_square():
    # On a 2 x 2 torus: centre U, then (0 + U + 0 + U)/4 + 100 U(-100, 100) twice.
    rng = np.random.default_rng(5)
    u = rng.uniform(-100, 100, 3) * 100
    height = np.array([[0, u[0] / 2 + u[1]], [u[0] / 2 + u[2], u[0]]])
    expected = (height - height.min()) / (height.max() - height.min())
    assert np.allclose(plasma(2, 3.0, np.random.default_rng(5)), expected, atol=1e-12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_keeps_the_brightest_level_and_lifts_black_to_its_strength(severity):
    strength = [0.2, 0.5, 0.75, 1, 1.5][severity - 1]
    foggy = corrupt(np.where(np.arange(32)[:, None, None] < 16, flat(0), flat(255)), "fog", severity)[0]
    assert foggy.max() <= 255
    assert foggy[:16].max() <= 255 * strength / (1 + strength)
    assert foggy[16:].min() >= np.floor(255 / (1 + strength))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_brightens_at_least_by_its_mix(severity):
    mix = CONSTANTS["snow"][severity - 1][-1]
    snowy = corrupt(flat(50), "snow", severity)[0]
    x = 50 / 255
    assert snowy.min() >= np.floor((mix * x + (1 - mix) * (1.5 * x + 0.5)) * 255 - 1e-3)


def test_snow_layer_is_sparse_at_severity_one():
    # Flakes are normals with mean 0.1 and std 0.2 that exceed 0.6 (2.5 std): 0.62 % of the pixels. Blur keeps their
    # sum. 400 layers, flakes of mean 0.674: the expected mean level is 255 * 0.00621 * 0.674 = 1.07.
    fall = Fall(*CONSTANTS["snow"][0][:-1])
    mean = np.mean([flakes((32, 32), np.random.default_rng([1, i]), fall).mean() for i in range(400)])
    assert mean == pytest.approx(1.07, abs=0.12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_of_black_is_the_texture_times_its_weight(severity):
    cover = [0.2, 0.3, 0.4, 0.4, 0.45][severity - 1]
    frosted = corrupt(flat(0), "frost", severity)
    assert frosted.max() <= 255 * cover
    assert frosted.std() > 1


def test_frost_keeps_its_weight_of_the_image():
    # The same ice over two levels differs by the weight times their difference.
    dark, light = corrupt(flat(20), "frost", 5).astype(int), corrupt(flat(120), "frost", 5).astype(int)
    assert set(np.unique(light - dark)) <= {75}


# Colour.
@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_adds_to_the_largest_channel_and_keeps_ratios(severity):
    added = [0.05, 0.1, 0.15, 0.2, 0.3][severity - 1]
    image = flat(0)
    image[...] = (100, 50, 25)
    bright = corrupt(image, "brightness", severity)[0, 0, 0]
    value = 100 / 255 + added
    assert bright.tolist() == [int(255 * value + 1e-9), int(255 * value / 2 + 1e-9), int(255 * value / 4 + 1e-9)]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_about_the_mean_of_each_channel(severity):
    factor = [0.75, 0.5, 0.4, 0.3, 0.15][severity - 1]
    image = np.where(np.arange(32)[:, None, None] < 16, flat(60), flat(200))
    low, high = np.unique(corrupt(image, "contrast", severity))
    assert low == int(130 - 70 * factor + 1e-9)
    assert high == int(130 + 70 * factor + 1e-9)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_saturate_scales_saturation_and_tints_grey_red_if_it_adds(severity):
    factor, added = CONSTANTS["saturate"][severity - 1]
    image = flat(0)
    image[...] = (200, 150, 150)  # S = 1/4
    red, green, blue = corrupt(image, "saturate", severity)[0, 0, 0]
    saturation = min(factor / 4 + added, 1)
    assert (red, green) == (200, int(200 * (1 - saturation) + 1e-9))
    assert blue == green
    grey = corrupt(flat(200), "saturate", severity)[0, 0, 0]
    assert grey.tolist() == [200, *[int(200 * (1 - added) + 1e-9)] * 2]


def test_hsv_agrees_with_matplotlib_and_is_inverted():
    from matplotlib.colors import hsv_to_rgb, rgb_to_hsv

    rgb = np.random.default_rng(0).integers(0, 256, (500, 3)) / 255
    rgb[:6] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [1, 1, 0], [1, 0, 1]]
    assert np.allclose(to_hsv(rgb), rgb_to_hsv(rgb), atol=1e-12)
    assert np.allclose(to_rgb(to_hsv(rgb)), rgb, atol=1e-12)
    assert np.allclose(to_rgb(to_hsv(rgb)), hsv_to_rgb(rgb_to_hsv(rgb)), atol=1e-12)


# Digital.
@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_averages_boxes_over_the_right_side_and_repeats_them(severity, photos):
    side = [30, 28, 27, 24, 20][severity - 1]
    assert int(32 * CONSTANTS["pixelate"][severity - 1][0]) == side
    # A small pixel is the mean of the pixels whose centres lie in its box; enlarging takes the nearest small pixel.
    distance = (np.arange(32) + 0.5) * side / 32 - (np.arange(side)[:, None] + 0.5)
    inside = (distance > -0.5) & (distance <= 0.5)
    shrink = inside / inside.sum(axis=1, keepdims=True)
    nearest = ((np.arange(32) + 0.5) * side / 32).astype(int)
    expected = np.einsum("ij,jkc,lk->ilc", shrink, photos[0].astype(float), shrink)[np.ix_(nearest, nearest)]
    assert np.abs(corrupt(photos[:1], "pixelate", severity)[0] - expected).max() <= 1  # Pillow rounds twice


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_has_the_quantisation_table_of_its_quality(severity, photos):
    # IJG: entry = floor((base * scale + 50) / 100), scale = 200 - 2 q for q >= 50 and 5000 / q below; base[0] is 16.
    quality = [80, 65, 58, 50, 40][severity - 1]
    scale = 200 - 2 * quality if quality >= 50 else 5000 // quality
    file = io.BytesIO()
    Image.fromarray(photos[0]).save(file, "JPEG", quality=quality)
    picture = Image.open(file)
    assert picture.quantization[0][0] == (16 * scale + 50) // 100
    assert (corrupt(photos[:1], "jpeg_compression", severity)[0] == np.asarray(picture)).all()


def test_jpeg_halves_the_chroma_resolution():
    # Alternating red and blue columns share a chroma sample: the colour averages out, so the columns become similar.
    image = flat(0)
    image[0, :, ::2, 0] = 200
    image[0, :, 1::2, 2] = 200
    out = corrupt(image, "jpeg_compression", 1)[0].astype(int)
    assert np.abs(out[:, ::2, 2] - out[:, 1::2, 2]).mean() < 100


def test_affine_map_takes_points_to_points_and_the_identity_changes_nothing(photos):
    points = np.array([[26, 26], [26, 6], [6, 6]], dtype=np.float32)
    moved = points + np.array([[1, 2], [0, -1], [2, 0]], dtype=np.float32)
    matrix = _through(points, moved)
    assert np.allclose(matrix @ np.vstack([points.T, np.ones(3)]), moved.T, atol=1e-6)
    x = (photos[0] / 255).astype(np.float32)
    assert (_affine(x, np.array([[1.0, 0, 0], [0, 1, 0]])) == x).all()
    right = _affine(x, np.array([[1.0, 0, 3], [0, 1, 0]]))  # shifted three columns to the right, mirrored at the left
    assert np.allclose(right[:, 3:], x[:, :-3])
    assert np.allclose(right[:, :3], x[:, 3:0:-1])


def test_elastic_severity_one_is_affine_only(photos):
    # An affine map keeps a ramp linear: its second differences vanish away from the mirrored border.
    ramp = np.repeat((np.arange(32) * 6 + 30)[None, None, :, None], 32, axis=1).repeat(3, axis=3).astype(np.uint8)
    for seed in range(5):
        warped = corrupt(ramp, "elastic_transform", 1, seed)[0, 8:24, 8:24, 0].astype(int)
        assert np.abs(np.diff(warped, 2, axis=1)).max() <= 2  # positions in 1/32 pixel and truncation
        assert np.abs(np.diff(warped, 2, axis=0)).max() <= 2


@pytest.mark.parametrize("severity", [3, 5])
def test_elastic_displacements_have_the_variance_of_smoothed_uniform_noise(severity):
    # alpha side U(-1, 1) smoothed by Gaussian taps w cut at 3 sigma has variance (alpha side)^2 / 3 (sum w^2)^2. A ramp
    # of 6 levels per pixel shows it, and truncation adds 1/12. Displacements are correlated over about 4 pi sigma^2
    # pixels, so 300 images of 256 pixels are about 1,650 draws at severity 3 (more at 5): standard error 3.5 % at most.
    alpha, sigma = (32 * c for c in CONSTANTS["elastic_transform"][severity - 1][:2])
    reach = int(3 * sigma + 0.5)
    w = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    expected = 36 * alpha**2 / 3 * np.sum((w / w.sum()) ** 2) ** 2 + 1 / 12
    ramp = np.repeat((np.arange(32) * 6 + 30)[None, :, None], 32, axis=0).repeat(3, axis=2).astype(np.uint8)
    moved = [
        elastic_transform(ramp, np.random.default_rng([severity, i]), alpha / 32, sigma / 32, 0) for i in range(300)
    ]
    shift = (np.array(moved).astype(float) - ramp)[:, 8:24, 8:24, 0]
    assert shift.var() == pytest.approx(expected, rel=0.14)
    assert shift.mean() == pytest.approx(-0.5, abs=0.2)


# Spatter.
def test_spatter_adds_turquoise_at_severities_one_to_three_and_brown_at_four_and_five():
    for severity in (1, 2, 3):
        change = corrupt(flat(0, 40), "spatter", severity).reshape(-1, 3).astype(float)
        wet = change[change[:, 1] > 50]
        assert np.abs(wet[:, 0] / wet[:, 1] - 175 / 238).max() < 0.02
        assert (wet[:, 1] == wet[:, 2]).all()
        assert change.max() <= 0.5 * 238 + 1
    for severity in (4, 5):
        muddy = corrupt(flat(255, 40), "spatter", severity).reshape(-1, 3).astype(int)
        covered = muddy[(muddy != 255).any(axis=1)]
        # Brown (63, 42, 20) with an opacity between 0.8 and 1 over white.
        assert (covered.min(axis=0) == [62, 41, 20]).all() or (covered.min(axis=0) == [63, 42, 20]).all()
        assert (covered.max(axis=0) <= np.ceil(0.8 * np.array([63, 42, 20]) + 0.2 * 255)).all()


def test_spatter_at_severity_three_is_pinned_closely_enough_to_detect_wrong_canny_thresholds():
    # Mean level of 200 black images. Canny thresholds of 1, 100 or 200 instead of 50 and 150 shift it by 0.014 to 0.12.
    assert corrupt(flat(0, 200), "spatter", 3).mean() == pytest.approx(7.2607, abs=0.003)


def test_canny_finds_the_outline_of_a_square_and_nothing_in_a_faint_one():
    square = np.zeros((32, 32), dtype=np.uint8)
    square[10:20, 10:20] = 200
    edges = canny(square, 50, 150)
    assert edges[9:21, 9:21].sum() >= 4 * 9
    assert edges.sum() == edges[9:21, 9:21].sum()
    assert not edges[12:18, 12:18].any()
    assert not canny(square // 20, 50, 150).any()  # steps of 10: gradient 40 is below the low threshold


def test_chamfer_distance_is_close_to_the_euclidean_one_and_capped():
    edges = np.zeros((32, 32), dtype=bool)
    edges[5, 7] = True
    euclid = np.hypot(*np.mgrid[-5:27, -7:25])
    distance = distance_to(edges, 20)
    assert distance[5, 8] == 1
    assert distance[6, 8] == pytest.approx(1.4, abs=1e-5)
    assert distance[7, 8] == pytest.approx(2.1969, abs=1e-5)
    assert np.abs(distance - np.minimum(euclid, 20)).max() < 0.03 * 20
    assert (distance_to(np.zeros((32, 32), dtype=bool), 20) == 20).all()


def test_equalise_stretches_two_levels_to_the_ends_and_leaves_a_single_level_unchanged():
    x = np.array([[3, 3], [9, 9]], dtype=np.uint8)
    assert equalise(x).tolist() == [[0, 0], [255, 255]]
    assert equalise(np.full((2, 2), 7, dtype=np.uint8)).tolist() == [[7, 7], [7, 7]]


def test_emboss_keeps_uniform_areas_and_saturates_at_steps():
    assert (emboss(np.full((5, 5), 30, dtype=np.uint8)) == 30).all()  # the kernel sums to 1
    step = np.zeros((5, 6), dtype=np.uint8)
    step[:, 3:] = 100
    # Columns -1, 0, 1 of the kernel sum to -3, 1, 3.
    assert emboss(step)[2].tolist() == [0, 0, 255, 255, 100, 100]
