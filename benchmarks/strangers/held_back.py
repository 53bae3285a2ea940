"""Four families of phantoms that look like scans of hospitals. No rule of the planner was tuned on them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from families import COUNTS, FOLDERS, Draw, phantoms
from PIL import Image
from scipy import ndimage

from graftseg.core.types import Geometry
from graftseg.data.scans import write_label

Rng = np.random.Generator
Numbers = np.ndarray | tuple[float, ...]
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


class Body:
    """Positions of voxels in mm, bent by a smooth random field, so that no object is an exact ellipsoid."""

    def __init__(self, rng: Rng, shape: tuple[int, ...], spacing: Numbers, shift: Numbers, bend: float) -> None:
        self.affine = np.eye(4)
        size = np.asarray(spacing, float)
        self.affine[range(len(shape)), range(len(shape))] = size
        self.affine[: len(shape), 3] = np.asarray(shift) - size * (np.array(shape) - 1) / 2
        lines = [size[axis] * np.arange(n) + self.affine[axis, 3] for axis, n in enumerate(shape)]
        self.straight = np.stack(np.meshgrid(*lines, indexing="ij")).astype(np.float32)
        self.space = self.straight + bend * np.stack([smooth(rng, shape, 5) for _ in shape])

    def blob(self, center: Numbers, radii: Numbers, turn: float = 0.0) -> np.ndarray:
        """Return the squared distance from a center in units of the radii, turned in the plane of the slices."""
        offset = [line - np.float32(value) for line, value in zip(self.space, center, strict=True)]
        cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
        offset[:2] = offset[0] * cos + offset[1] * sin, offset[1] * cos - offset[0] * sin
        distance: np.ndarray = sum(np.square(line / np.float32(size)) for line, size in zip(offset, radii, strict=True))
        return distance


def smooth(rng: Rng, shape: tuple[int, ...], knots: int) -> np.ndarray:
    """Draw a smooth field between about -1 and 1."""
    field = rng.uniform(-1, 1, [knots if n > knots else 2 for n in shape]).astype(np.float32)
    for size in shape:
        factors = (size / len(field), 1)
        weights = ndimage.zoom(np.eye(len(field), dtype=np.float32), factors, mode="nearest", grid_mode=True)
        field = np.tensordot(field, weights, (0, 1))
    return field


def texture(rng: Rng, shape: tuple[int, ...], sigma: float | tuple[float, ...]) -> np.ndarray:
    """Draw noise with a standard deviation of 1 and grains of this size in voxels."""
    noise: np.ndarray = ndimage.gaussian_filter(rng.standard_normal(shape, np.float32), sigma)
    return noise / float(noise.std())


def abdomen(rng: Rng) -> Drawn:
    """Draw a CT of a child in Hounsfield units: liver, spleen, left kidney, right kidney and pancreas (1 to 5)."""
    shape = tuple(int(n) for n in rng.integers((112, 112, 32), (145, 145, 47)))
    pixel, slice_distance = rng.uniform((1.05, 3.5), (1.4, 4.5))
    body = Body(rng, shape, (pixel * rng.choice((-1, 1)), pixel, slice_distance), rng.normal(0, (4, 4, 14)), 3.0)
    scale, agent, jitter = rng.uniform(0.85, 1.1), rng.uniform(0, 1), partial(rng.normal, 0)
    label, image = np.zeros(shape, np.uint8), np.full(shape, -1000.0, np.float32)
    skin, muscle = (body.blob((0, 0, 0), scale * np.array(radii)) for radii in ((68, 52, 400), (60, 45, 400)))
    image[skin < 1], image[muscle < 1] = -100, 55
    image[muscle < rng.uniform(0.7, 0.85)] = -85
    image[np.abs(body.straight[1] + 62 * scale) < 2.5] = -300
    for _ in range(20):
        angle, height = rng.uniform(0, 2 * np.pi), rng.uniform(-90, 30)
        place = scale * np.array((33 * np.cos(angle), 8 + 24 * np.sin(angle), height))
        loop = body.blob(place, rng.uniform((5, 5, 6), (13, 13, 22)), angle)
        image[loop < 1] = rng.normal(45, 20)
        image[loop < rng.uniform(0, 0.6)] = rng.choice((-700, 15, 40, 220), p=(0.25, 0.35, 0.3, 0.1))
    stomach = body.blob(jitter((4, 4, 6)) + np.array((-22 * scale, 14, 48)), rng.uniform((12, 11, 14), (18, 16, 24)))
    image[stomach < 1], image[stomach < rng.uniform(0.4, 0.9)] = 60, rng.choice((-800, 10, 50))
    organs = (
        (1, (27, 6, 42), (29, 31, 36), (55, 55)),
        (1, (0, 18, 52), (25, 13, 18), (55, 55)),
        (2, (-43, -18, 48), (11, 18, 22), (48, 75)),
        (3, (-30, -24, 8), (11, 12, 27), (32, 140)),
        (4, (30, -24, 0), (11, 12, 27), (32, 140)),
        (5, (-6, 1, 20), (27, 5.5, 8), (42, 45)),
    )
    bright = {value: plain + agent * gain + jitter(7) for value, _, _, (plain, gain) in organs}
    bright[4] = bright[3]
    for value, center, radii, _ in organs:
        place = scale * (np.array(center) + jitter((3, 3, 7)))
        inside = body.blob(place, scale * np.array(radii) * rng.uniform(0.8, 1.2, 3), jitter(0.2)) < 1
        inside &= (muscle < 0.92) & ((label == 0) | (value == 1))
        label[inside], image[inside] = value, bright[value]
        if value in (3, 4):
            pelvis = body.blob(place + np.array((0, 0, jitter(3))), (5, 5, 13)) < 1
            image[inside & pelvis] = rng.choice((-40, 10, 60 + 150 * agent))
    tubes = ((0, -15, 6, 6, 150), (9, -13, 7, 7, 100), (0, -31, 12, 9, 0), (0, -44, 3, 8, 0), (-52, -25, 4, 6, 0))
    for x, y, wide, high, gain in (*tubes, (52, -25, 4, 6, 0)):
        tube = body.blob((scale * x, scale * y, 0), (scale * wide, scale * high, 900)) < 1
        image[tube], label[tube] = 45 + agent * gain if gain else rng.uniform(180, 450), 0
    image += np.where(skin < 1, 14, 5) * texture(rng, shape, (2.5, 2.5, 0.5))
    values = ndimage.gaussian_filter(image, (0.7, 0.7, 0.3)) + rng.uniform(12, 35) * texture(rng, shape, (0.7, 0.7, 0))
    return np.clip(np.round(values), -1024, 3071).astype(np.int16), label, body.affine


def lesions(rng: Rng) -> Drawn:
    """Draw a head in MR with 0 to 8 bright lesions (1) in the white matter. The unit of the values is unknown."""
    shape = tuple(int(n) for n in rng.integers((104, 124, 36), (121, 141, 45)))
    body = Body(rng, shape, (1.5, 1.5, rng.choice((3.0, 3.5, 4.0))), rng.normal(0, 4, 3), 5.0)
    scale = rng.uniform(0.92, 1.06)
    skin, brain = (body.blob((0, 0, -5), scale * np.array(radii)) for radii in ((74, 90, 78), (63, 79, 67)))
    folds = texture(rng, shape, (2.2, 2.2, 1.1))
    white, gray_value, fluid = brain + 0.16 * folds < 0.66, rng.uniform(0.6, 0.75), rng.uniform(0.05, 0.3)
    image: np.ndarray = np.where(skin < 1, rng.uniform(0.5, 1.1), 0.02).astype(np.float32)
    image[skin < 0.9], image[brain < 1] = 0.1, fluid
    image[brain + 0.1 * folds < 0.93], image[white] = gray_value, 0.5
    wide, label = rng.uniform(0.7, 1.5), np.zeros(shape, np.uint8)
    horns = np.minimum(*(body.blob((side * 13, 4, 8), (7 * wide, 28 * wide, 15), side * 0.25) for side in (-1, 1)))
    image[(horns < rng.uniform(1.2, 1.5)) & white] = rng.uniform(0.5, 0.7)
    image[np.minimum(*(body.blob((side * 24, 4, -6), (8, 14, 9)) for side in (-1, 1))) < 1] = gray_value
    image[horns < 1], places = fluid, np.argwhere((brain < 0.72) & (horns > 1.3))
    for _ in range(max(0, int(rng.integers(-1, 9)))):
        center = body.space[(slice(None), *rng.choice(places))]
        radii = np.exp(rng.uniform(np.log(3), np.log(9))) * rng.uniform(0.75, 1.3, 3) + (0, 0, 1)
        inside = body.blob(center, radii, rng.uniform(0, 3)) + 0.25 * texture(rng, shape, 1.5) < 1
        inside &= (horns > 1) & (brain < 0.9)
        label[inside], image[inside] = 1, rng.uniform(0.72, 0.95)
    for _ in range(int(rng.integers(3, 9))):
        spot = body.blob(body.space[(slice(None), *rng.choice(places))], rng.uniform(1.5, 7, 3)) < 1
        image[spot & (label == 0) & (brain < 0.9)] *= rng.choice((0.5, 0.75, 1.15))
    image += 0.035 * texture(rng, shape, (1.5, 1.5, 0.5)) * (skin < 1)
    image = ndimage.gaussian_filter(image, (0.6, 0.6, 0.35)) * (1 + 0.3 * smooth(rng, shape, 3))
    noise = rng.uniform(0.03, 0.06) * rng.standard_normal((2, *shape), np.float32)
    return np.hypot(image + noise[0], noise[1]) * np.float32(10 ** rng.uniform(0.5, 4)), label, body.affine


def ultrasound(rng: Rng, blobs: float = 1.0) -> Drawn:
    """Draw a fan of ultrasound: an incomplete bright ring (1), a weak blob in it (2), speckle and shadows.

    ``blobs`` is the fraction of pictures with a blob.
    """
    shape = tuple(int(n) for n in rng.integers(240, 273, 2))
    body = Body(rng, shape, (1.0, 1.0), (0, shape[1] / 2), 7.0)
    across, down = body.straight + np.reshape((0, apex := rng.uniform(20, 45)), (2, 1, 1))
    depth, angle = np.hypot(across, down), np.arctan2(across, down)
    fan = (np.abs(angle) < rng.uniform(0.5, 0.68)) & (depth > apex + 12) & (depth < shape[1] + apex - 8)
    echo = np.exp(0.45 * texture(rng, shape, 14)) * 0.3
    for _ in range(int(rng.integers(5, 10))):
        part = body.blob(rng.uniform((-90, 20), (90, 240)), rng.uniform(6, 32, 2), rng.uniform(0, 3))
        echo[part < 1] = rng.choice((0.04, 0.15, 0.5, 0.9)) * rng.uniform(0.7, 1.4)
        if rng.random() < 0.4:
            echo[np.abs(part - 1) < 0.12] = rng.uniform(0.8, 1.8)
    center, turn = rng.normal((0, 125), (22, 20)), rng.uniform(0, np.pi)
    radii = rng.uniform(36, 60) * np.array((1, rng.uniform(0.68, 0.95)))
    distance, thick = np.sqrt(body.blob(center, radii, turn)), rng.uniform(4, 8) / radii.mean()
    ring, inside = np.abs(distance - 1) < thick, distance < 1 - thick
    normal = np.arctan2(*(line - value for line, value in zip(body.straight, center, strict=True)))
    echo[inside] = (0.2 * np.exp(0.5 * texture(rng, shape, 6)))[inside]
    echo[ring] = (0.2 + 1.6 * np.abs(np.cos(normal - angle)) ** rng.uniform(1, 3))[ring]
    blob = body.blob(center + rng.normal(0, 0.22, 2) * radii, radii * rng.uniform(0.2, 0.4, 2), rng.uniform(0, 3)) < 1
    blob &= inside & (blobs == 1 or rng.random() < blobs)
    echo[blob] *= rng.choice((0.35, 2.6)) * rng.uniform(0.85, 1.2)
    label = np.where(fan, ring + 2 * blob, 0).astype(np.uint8)
    for _ in range(int(rng.integers(1, 4))):
        dark = np.exp(-(((angle - rng.uniform(-0.6, 0.6)) / rng.uniform(0.02, 0.07)) ** 2))
        echo *= 1 - 0.85 * dark * (depth > rng.uniform(60, 200))
    speckle = np.hypot(*texture(rng, (2, *shape), (0, rng.uniform(1.2, 2.2), rng.uniform(0.7, 1.1))))
    signal = ndimage.gaussian_filter(echo, 1.0) * speckle * np.exp(-rng.uniform(0, 0.006) * depth)
    image = rng.uniform(110, 160) + rng.uniform(38, 55) * np.log(signal + 0.02)
    return np.where(fan, np.clip(image, 0, 255), 0).astype(np.uint8), label, body.affine


COILS = {
    "body": (320, 0.72, 1.0, 0.05, 600),
    "array": (384, 0.56, 0.75, 0.03, 1800),
    "surface": (320, 0.625, 1.35, 0.04, 250),
    "inner": (352, 0.5, 0.9, 0.035, 4000),
}
"""Scanners by coil: pixels, size of a pixel in mm, exponent of the intensity curve, noise and the top value."""


def prostate(rng: Rng) -> Drawn:
    """Draw thick slices of a pelvis in MR from one of four scanners: outer (1) and inner zone (2) of a small organ."""
    coil = str(rng.choice(list(COILS)))
    pixels, pixel, power, noise, top = COILS[coil]
    shape = (pixels, pixels, int(rng.integers(15, 26)))
    body = Body(rng, shape, (pixel, pixel, 3.6), rng.normal(0, (4, 5, 5)), 3.0)
    image = np.where(body.blob((0, 0, 0), (135, 92, 500)) < 1, 0.75, 0.02).astype(np.float32)
    image[body.blob((0, -2, 0), (116, 74, 500)) < 1] = 0.5
    for side in (-1, 1):
        image[body.blob((side * 62, 8, 0), (30, 34, 500), side * 0.5) < 1] = rng.uniform(0.15, 0.25)
        image[body.blob((side * 86, 2, rng.normal(5, 10)), (23, 24, 30)) < 1] = rng.uniform(0.5, 0.65)
        image[body.blob((side * 32, -8, 0), (6, 34, 60), side * 0.25) < 1] = 0.2
        image[body.blob((side * 34, 30, 0), (5, 5, 200)) < 1] = rng.uniform(0.1, 0.9)
    for _ in range(8):
        center = rng.uniform((-50, -60, -40), (50, 55, 40))
        image[body.blob(center, rng.uniform(3, 10, 3) * (1, 1, 2)) < 1] = rng.uniform(0.2, 0.85)
    radii = rng.uniform((19, 15, 15), (28, 21, 24))
    center = rng.normal((0, 0, -4), (4, 8, 5))
    bladder = body.blob(center + np.array((0, 8, radii[2] + rng.uniform(10, 22))), (34, 26, 24))
    image[bladder < 1] = rng.uniform(0.85, 1.0)
    bowel = body.blob(center - np.array((rng.normal(0, 4), radii[1] + 13, 0)), rng.uniform((10, 9, 90), (17, 14, 91)))
    image[bowel < 1], image[bowel < 0.6] = 0.3, rng.choice((0.05, 0.4, 0.6))
    outer = body.blob(center, radii)
    inner = body.blob(center + radii * (0, rng.uniform(0.15, 0.28), 0.1), radii * rng.uniform(0.62, 0.82, 3)) < 1
    inner &= outer < 0.97
    label, mean = (outer < 1).astype(np.uint8) + inner, rng.normal(0.46, 0.04)
    grains, nodes = (texture(rng, shape, (mm / pixel, mm / pixel, 0.3 * mm)) for mm in (1.0, 2.8))
    image[label == 1] = mean + rng.uniform(0.03, 0.14) + 0.05 * grains[label == 1]
    image[inner] = mean + 0.11 * nodes[inner]
    image[np.abs(outer - 1.06) < rng.uniform(0.0, 0.09)] -= 0.1
    image += 0.04 * texture(rng, shape, (2, 2, 0.5)) * (image > 0.1)
    image = np.clip(ndimage.gaussian_filter(image, (0.5 / pixel, 0.5 / pixel, 0)), 0, None) ** power
    distance, edge = body.blob(center - np.array((0, radii[1] + 13, 0)), (35, 35, 60)), body.straight[1] / 92
    curves = {"array": 0.75 + 0.6 * edge**2, "surface": 1 + 0.4 * edge, "inner": 0.35 + 2.2 / (1 + distance)}
    image *= curves.get(coil, 1.0)
    image = image * (1 + 0.2 * smooth(rng, shape, 3)) + noise * rng.standard_normal(shape, np.float32)
    return np.round(np.clip(image, 0, None) * top).astype(np.int16), label, body.affine


def pictures(draw: Draw, out: Path, seed: int, *, all_labeled: bool) -> None:
    """Write a data set of one 2-D family as PNG files. With ``all_labeled``, the unlabeled scans have labels, too."""
    folders = FOLDERS | ({"unlabeled": FOLDERS["labeled"]} if all_labeled else {})
    for number, (split, (images, labels)) in enumerate(folders.items()):
        (out / images).mkdir(parents=True, exist_ok=True)
        for index in range(COUNTS[split]):
            image, label, _ = draw(np.random.default_rng((seed, number, index)))
            Image.fromarray(np.ascontiguousarray(image.T)).save(out / images / f"{split}{index:03d}.png")
            if labels is not None:
                grid = Geometry(label.shape, ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))
                write_label(out / labels / f"{split}{index:03d}.png", label, grid)


FAMILIES: dict[str, Callable[..., None]] = {
    "abdomen": partial(phantoms, abdomen),
    "lesions": partial(phantoms, lesions),
    "ultrasound": partial(pictures, ultrasound),
    "prostate": partial(phantoms, prostate),
}
"""Writers of a data set, called with a folder, a seed and ``all_labeled``."""
