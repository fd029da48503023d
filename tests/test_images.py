"""Images of every format, colour mode and orientation are read as they are displayed. Skipped files are named."""

import io
import logging
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastweights import InputError
from fastweights.experiments.adaptation import _read
from fastweights.tasks.image_folder import ImageFolder
from fastweights.tasks.omniglot import Omniglot
from fastweights.tasks.sources import image_sets
from fastweights.tasks.sources import images as _images
from fastweights.tasks.sources.images import read_channels

Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra vision")

figures = arrays.arrays(bool, st.tuples(st.integers(2, 6), st.integers(2, 6))).filter(lambda f: 0 < f.sum() < f.size)
EXAMPLES = 20
"""Random figures per case. A property has up to 96 cases."""
ORIENTATION = 0x0112
UNDONE = {  # stored pixels of an image for each EXIF orientation
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x, -1),
}


def stored(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def levels(figure, ink, ground):
    return np.where(figure, np.uint8(ink), np.uint8(ground))


def transparent(figure, ink, mode, kind="PNG", **options):
    """A figure on a transparent ground, with noise in the transparent pixels."""
    hidden = np.random.default_rng(0).integers(0, 256, figure.shape, dtype=np.uint8)
    shown = np.where(figure, np.uint8(ink), hidden)
    alpha = levels(figure, 255, 0)
    channels = [shown] * (1 if mode == "LA" else 3)
    return stored(Image.fromarray(np.dstack([*channels, alpha]), mode), kind, **options)


def keyed(figure, ink, mode):
    """A figure on a ground of one grey level that is the transparent colour of the file."""
    grey = Image.fromarray(levels(figure, ink, 77))
    key = {"RGB": (77, 77, 77), "L": 77}[mode]
    return stored(grey.convert(mode), transparency=key)


def indexed(figure, ink, kind, **options):
    image = Image.fromarray(levels(figure, 1, 0), "P")
    image.putpalette([200, 100, 50, ink, ink, ink])
    return stored(image, kind, transparency=0, **options)


def of_sixteen_bits(figure, ink):
    return stored(Image.fromarray(np.where(figure, np.uint16(ink * 257), np.uint16(777))), transparency=777)


def animated(figure, ink):
    other = Image.new("P", figure.shape[::-1], 1)
    return indexed(figure, ink, "GIF", save_all=True, append_images=[other])


def one_bit(figure, ink):
    return stored(Image.fromarray(figure if ink else ~figure), transparency=0 if ink else 1)


TRANSPARENT = {
    "RGBA": lambda f, ink: transparent(f, ink, "RGBA"),
    "LA": lambda f, ink: transparent(f, ink, "LA"),
    "RGBA in WebP": lambda f, ink: transparent(f, ink, "RGBA", "WEBP", lossless=True),
    "RGBA in TIFF": lambda f, ink: transparent(f, ink, "RGBA", "TIFF"),
    "LA in TIFF": lambda f, ink: transparent(f, ink, "LA", "TIFF"),
    "RGB with a key": lambda f, ink: keyed(f, ink, "RGB"),
    "L with a key": lambda f, ink: keyed(f, ink, "L"),
    "1 with a key": one_bit,
    "16 bits with a key": of_sixteen_bits,
    "palette": lambda f, ink: indexed(f, ink, "PNG"),
    "GIF": lambda f, ink: indexed(f, ink, "GIF"),
    "animated GIF": animated,
}

OPAQUE = {
    **{mode: lambda x, mode=mode: stored(Image.fromarray(x).convert(mode)) for mode in ("L", "RGB", "RGBA", "LA", "1")},
    "palette": lambda x: stored(Image.fromarray(x).convert("P")),
    "GIF": lambda x: stored(Image.fromarray(x), "GIF"),
    "BMP": lambda x: stored(Image.fromarray(x).convert("RGB"), "BMP"),
    "WebP": lambda x: stored(Image.fromarray(x).convert("RGB"), "WEBP", lossless=True),
    "CMYK": lambda x: stored(Image.fromarray(x).convert("RGB").convert("CMYK"), "TIFF"),
    "16 bits": lambda x: stored(Image.fromarray(x.astype(np.uint16) * 257)),
    "16 bits in TIFF": lambda x: stored(Image.fromarray(x.astype(np.uint16) * 257), "TIFF"),
    "PGM": lambda x: b"P5 %d %d 255\n" % x.shape[::-1] + x.tobytes(),
    "PGM of 16 bits": lambda x: b"P5 %d %d 65535\n" % x.shape[::-1] + (x.astype(">u2") * 257).astype(">u2").tobytes(),
    "PPM": lambda x: stored(Image.fromarray(x).convert("RGB"), "PPM"),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("ink", [0, 255])
@pytest.mark.parametrize("mode", TRANSPARENT)
@settings(max_examples=EXAMPLES)
@given(figure=figures)
def test_a_figure_on_a_transparent_ground_is_the_same_in_every_mode(mode, ink, channels, figure):
    """Black ink has a white ground, and white ink a black one."""
    read = read_channels(TRANSPARENT[mode](figure, ink), "a", channels)
    assert np.array_equal(read, np.repeat(levels(figure, ink, 255 - ink)[None], channels, axis=0))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", OPAQUE)
@settings(max_examples=EXAMPLES)
@given(figure=figures, ink=st.sampled_from([0, 255]))
def test_an_opaque_figure_is_the_same_in_every_mode(mode, channels, figure, ink):
    """Includes white on white, and an alpha channel without transparency."""
    for ground in (0, 255):
        drawn = levels(figure, ink, ground)
        read = read_channels(OPAQUE[mode](drawn), "a", channels)
        assert np.array_equal(read, np.repeat(drawn[None], channels, axis=0))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "16 bits"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", UNDONE)
@settings(max_examples=EXAMPLES)
@given(figure=figures)
def test_images_are_rotated_to_their_exif_orientation(orientation, kind, mode, figure):
    def picture(pixels):
        if mode == "16 bits" and kind != "WEBP":
            return Image.fromarray(pixels.astype(np.uint16) * 257)
        return Image.fromarray(pixels).convert("RGB" if mode == "16 bits" else mode)

    drawn, exif = levels(figure, 0, 255), Image.Exif()
    exif[ORIENTATION] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    turned = stored(picture(np.ascontiguousarray(UNDONE[orientation](drawn))), kind, exif=exif, **options)
    assert np.array_equal(read_channels(turned, "a", 3), read_channels(stored(picture(drawn)), "a", 3))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"]
)
@pytest.mark.filterwarnings("ignore")  # warnings of pillow about damaged data
def test_an_image_with_damaged_exif_is_read_as_stored(exif):
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    assert np.array_equal(
        read_channels(stored(image, "JPEG", exif=exif), "a", 1), read_channels(stored(image, "JPEG"), "a", 1)
    )


def test_half_transparent_parts_are_mixed_with_the_ground():
    half = Image.fromarray(np.full((2, 2, 4), (0, 0, 0, 51), np.uint8))
    assert read_channels(stored(half), "a", 1).tolist() == [[[204, 204], [204, 204]]]
    assert read_channels(stored(Image.new("RGBA", (2, 2))), "a", 1).min() == 255


# Skipped files

HIDDEN = [
    ".ipynb_checkpoints/0-checkpoint.png",
    "c3/.ipynb_checkpoints/0-checkpoint.png",
    ".thumbnails/large/0.png",
    "__MACOSX/c1/0.png",
    "c1/._0.png",
    "c2/@eaDir/0.png/thumb.png",
]
JUNK = ["c1/Thumbs.db", "c2/desktop.ini", ".DS_Store", "c0/notes.txt"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ten classes, hidden images, other files, and a folder without images."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    image_sets._warn_once.cache_clear()
    root, rng = tmp_path / "pictures", np.random.default_rng(0)
    for name in [f"c{c}/{k}.png" for c in range(10) for k in range(3)] + HIDDEN:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(stored(Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))))
    for name in JUNK:
        (root / name).write_bytes(b"junk")
    (root / "drawings").mkdir()
    (root / "drawings" / "a.svg").write_text("<svg/>")
    return root


@pytest.mark.parametrize("packed", [False, True])
def test_hidden_images_are_no_classes_and_skipped_files_are_named(folder, packed, caplog):
    path = folder
    if packed:
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, f"pictures/{file.relative_to(folder)}")
    with caplog.at_level(logging.WARNING, "fastweights"):
        image_set, _ = ImageFolder(folder=str(path), ways=2, shots=1, channels=1, side=8)._all
    assert image_set.names == tuple(f"c{c}" for c in range(10))
    assert image_set.counts.tolist() == [3] * 10
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{len(HIDDEN) + len(JUNK) + 1} hidden or no images (" in line
    assert "1 without images (" in line
    assert "drawings" in line
    assert "\n" not in line


@pytest.mark.parametrize("kind", ["empty", "svg", "broken link", "pipe", "hidden"])
def test_adaptation_never_drops_a_class(tmp_path, kind):
    import os

    task = Omniglot(ways=5, shots=1)
    for name in ("q.png", *(f"c{n}/a.png" for n in range(1, 4))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(stored(Image.new("L", (8, 8), 9)))
    assert _read(tmp_path, task)[0] == ("c1", "c2", "c3")
    home = tmp_path / "c0"
    home.mkdir()
    if kind == "svg":
        (home / "a.svg").write_text("<svg/>")
    elif kind == "broken link":
        (home / "a.png").symlink_to("nowhere.png")
    elif kind == "pipe":
        os.mkfifo(home / "a.png")
    elif kind == "hidden":
        (home / ".a.png").write_bytes(stored(Image.new("L", (8, 8), 9)))
    with pytest.raises(InputError, match="class 'c0' must be a folder with images"):
        _read(tmp_path, task)


def test_the_ground_of_white_figures_is_logged_once(caplog):
    _images._warn_once.cache_clear()
    figure = np.eye(4, dtype=bool)
    with caplog.at_level(logging.WARNING, "fastweights"):
        for _ in range(3):
            read_channels(TRANSPARENT["RGBA"](figure, 255), "a", 1)
            read_channels(TRANSPARENT["RGBA"](figure, 0), "a", 1)
    assert len(caplog.records) == 1
    assert "put on black" in caplog.text
