"""Three further families of phantoms: two with a class that some scans lack, and color pictures of skin."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from families import COUNTS, FOLDERS, phantoms
from held_back import Body, Drawn, Rng, pictures, smooth, texture, ultrasound
from PIL import Image
from scipy import ndimage

from graftseg.core.types import Geometry
from graftseg.data.scans import write_label

FILLINGS = (-700, 15, 40, 180)
"""Values of the content of a bowel loop in HU."""
AXES = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))


def nodules(rng: Rng) -> Drawn:
    """Draw a CT of the right (1) and left kidney (2). About half of the scans have a nodule (3). Cysts look similar."""
    shape = tuple(int(n) for n in rng.integers((96, 96, 24), (129, 129, 37)))
    pixel, distance = rng.uniform((1.4, 4.5), (1.9, 5.5))
    body = Body(rng, shape, (pixel, pixel, distance), rng.normal(0, (6, 6, 12)), 4.0)
    scale, agent = rng.uniform(0.9, 1.12), rng.uniform(0, 1)
    image, label = np.full(shape, -1000.0, np.float32), np.zeros(shape, np.uint8)
    skin = body.blob((0, 0, 0), scale * np.array((80, 62, 500)))
    muscle = body.blob((0, 0, 0), scale * np.array((70, 52, 500)))
    image[skin < 1], image[muscle < 1], image[muscle < 0.75] = -100, 50, -90
    liver = body.blob((34, 8, 45), scale * np.array((34, 34, 40))) < 1
    image[liver & (muscle < 0.95)] = 60 + 50 * agent
    for _ in range(14):
        place, value = scale * rng.uniform((-45, -5, -90), (45, 35, 40)), rng.choice(FILLINGS, p=(0.2, 0.4, 0.35, 0.05))
        loop = body.blob(place, rng.uniform((6, 6, 6), (14, 14, 24)), rng.uniform(0, 3)) < 1
        image[loop & (muscle < 0.9)] = value
    image[body.blob((0, -36, 0), (17, 15, 900)) < 1] = rng.uniform(180, 320)
    has_nodule, side_of_nodule = rng.random() < 0.5, rng.choice((-1, 1))
    for value, side in ((1, 1), (2, -1)):
        center = scale * (np.array((side * 36, -24, 4 - 6 * side)) + rng.normal(0, (3, 3, 8)))
        radii = scale * np.array((14, 15, 34)) * rng.uniform(0.85, 1.15, 3)
        inside = body.blob(center, radii, side * 0.3) < 1
        label[inside], image[inside] = value, 35 + 130 * agent
        image[body.blob(center - np.array((side * 6, 0, 0)), (6, 6, 16)) < 1] = rng.choice((-40, 15, 200 * agent))
        for _ in range(int(rng.integers(0, 3))):
            cyst = body.blob(_on_surface(rng, center, radii), np.full(3, rng.uniform(4, 11))) < 1
            image[cyst] = rng.normal(8, 6)
        if has_nodule and side == side_of_nodule:
            place = _on_surface(rng, center, radii)
            nodule = body.blob(place, rng.uniform(7, 16) * rng.uniform(0.85, 1.2, 3)) < 1
            image[nodule] = 38 + rng.uniform(15, 60) * agent + 12 * texture(rng, shape, 2)[nodule]
            label[nodule] = 3
    image += 10 * texture(rng, shape, (2, 2, 0.5))
    values = ndimage.gaussian_filter(image, (0.6, 0.6, 0.3)) + rng.uniform(12, 28) * rng.standard_normal(shape)
    return np.clip(np.round(values), -1024, 3071).astype(np.int16), label, body.affine


def _on_surface(rng: Rng, center: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Draw a position near the surface of an ellipsoid."""
    angle = rng.uniform(0, 2 * np.pi)
    place: np.ndarray = center + radii * np.array((np.cos(angle), np.sin(angle), rng.uniform(-0.6, 0.6)))
    return place


def skin(rng: Rng) -> Drawn:
    """Draw a color picture of skin with a pigmented lesion (1), hair and uneven light."""
    shape = tuple(int(n) for n in rng.integers((120, 120), (181, 241)))
    body = Body(rng, shape, (1.0, 1.0), (0, 0), 6.0)
    tone = np.array(rng.uniform((190, 140, 110), (240, 200, 180)), np.float32)
    light, grain = 1 + 0.15 * smooth(rng, shape, 4), texture(rng, shape, 2)
    radii = rng.uniform(18, 52, 2)
    distance = body.blob(rng.normal(0, 12, 2), radii, rng.uniform(0, 3)) + 0.18 * texture(rng, shape, 5)
    edge = np.clip((1.12 - distance) / rng.uniform(0.1, 0.5), 0, 1)[..., None]
    pigment = np.array(rng.uniform((0.35, 0.3, 0.3), (0.85, 0.75, 0.75)), np.float32)
    patches = 1 + 0.25 * texture(rng, shape, 7)[..., None] * edge
    image = tone * (1 - edge * (1 - pigment)) * patches
    image = np.where(texture(rng, shape, 3)[..., None] > 2.4, image * 0.8, image)
    for _ in range(int(rng.integers(0, 14))):
        at, angle = rng.uniform(-80, 80, 2), rng.uniform(0, np.pi)
        hair = np.abs((body.space[0] - at[0]) * np.sin(angle) - (body.space[1] - at[1]) * np.cos(angle)) < 0.9
        image[hair] *= rng.uniform(0.2, 0.5)
    image = image * light[..., None] + 5 * grain[..., None]
    if rng.random() < 0.3:
        image[np.hypot(*body.straight) > 0.5 * np.hypot(shape[0], shape[1]) * rng.uniform(0.85, 1)] *= 0.1
    image = ndimage.gaussian_filter(image, (0.7, 0.7, 0)) + rng.normal(0, 4, (*shape, 3))
    return np.clip(image, 0, 255).astype(np.uint8), (distance < 1).astype(np.uint8), body.affine


def color_pictures(draw: Callable[[Rng], Drawn], out: Path, seed: int, *, all_labeled: bool) -> None:
    """Write a data set of color pictures as PNG files. With ``all_labeled``, the unlabeled scans have labels, too."""
    folders = FOLDERS | ({"unlabeled": FOLDERS["labeled"]} if all_labeled else {})
    for number, (split, (images, labels)) in enumerate(folders.items()):
        (out / images).mkdir(parents=True, exist_ok=True)
        for index in range(COUNTS[split]):
            image, label, _ = draw(np.random.default_rng((seed, number, index)))
            picture = np.ascontiguousarray(image.transpose(1, 0, 2))
            Image.fromarray(picture).save(out / images / f"{split}{index:03d}.png")
            if labels is not None:
                write_label(out / labels / f"{split}{index:03d}.png", label, Geometry(label.shape, AXES))


FAMILIES: dict[str, Callable[..., None]] = {
    "nodules": partial(phantoms, nodules),
    "sometimes": partial(pictures, partial(ultrasound, blobs=0.5)),
    "skin": partial(color_pictures, skin),
}
"""Writers of a data set, called with a folder, a seed and ``all_labeled``."""
