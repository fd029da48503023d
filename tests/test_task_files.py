"""Files from disk and network: correct content is read, and damaged or hostile content is refused in one line."""

import contextlib
import gzip
import hashlib
import io
import os
import socket
import tarfile
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastweights import InputError
from fastweights.tasks import MissingFile
from fastweights.tasks.face_glimpses import FaceGlimpses
from fastweights.tasks.list_ops import evaluate, read_examples
from fastweights.tasks.mnist_glimpses import MNISTGlimpses
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.data_files import DataFile, data_cache, gunzip
from fastweights.tasks.sources.images import read_channels, read_idx, read_image, read_pgm, scale_by_area
from fastweights.tasks.text import Text
from fastweights.tasks.wikitext_103 import Wikitext103

CONTENT = b"content with a well known check sum"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PERSON = r"(?P<person>\w+)/(?P<mood>\w+)\.(pgm|png)$"


@pytest.fixture(autouse=True)
def empty_folders(monkeypatch, tmp_path):
    """Empty folders for data and cache."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FASTWEIGHTS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def data_file(*urls):
    return DataFile("set/file.gz", len(CONTENT), SHA256, urls)


@pytest.mark.parametrize("place", ["data/set/file.gz", "data/file.gz", "cache/fastweights/data/set/file.gz"])
def test_file_is_found_in_every_layout(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(CONTENT)
    assert data_file().read() == CONTENT


def test_a_file_with_a_common_name_is_found_under_its_full_path_only(tmp_path):
    """WikiText-2 and WikiText-103 have files of the same names."""
    (tmp_path / "data" / "wiki.train.tokens").write_text("of another text")
    with pytest.raises(MissingFile, match="wikitext-103"):
        Wikitext103().read("train")


@pytest.mark.parametrize("content", [CONTENT[:-1], b"", CONTENT.replace(b"s", b"z"), CONTENT + b"."])
def test_wrong_file_is_refused_with_size_and_checksum(tmp_path, content):
    (tmp_path / "data" / "file.gz").write_bytes(content)
    with pytest.raises(InputError) as caught:
        data_file().read()
    message = str(caught.value)
    expected, actual = f"{len(CONTENT)} bytes with SHA-256 {SHA256}", hashlib.sha256(content).hexdigest()
    assert message == (
        f"{tmp_path}/data/file.gz must be {expected}, got {len(content)} bytes with SHA-256 {actual}. "
        "Delete it or fetch it again."
    )


def test_the_error_for_a_missing_file_names_its_place():
    with pytest.raises(
        MissingFile, match=r"set/file.gz must be 35 bytes .* got no such file\. Save it as .*/data/set/file.gz\. See"
    ):
        data_file().read()
    with pytest.raises(MissingFile, match=r"faces.tar.gz must be a file, got no such file\. Download .* from the UCI"):
        FaceGlimpses().labels  # noqa: B018


def test_downloads_are_cached(server):
    server.answers["/file"] = (200, CONTENT, len(CONTENT))
    file = data_file(server.url + "missing", server.url + "file")
    assert file.read() == CONTENT
    assert (data_cache() / "set" / "file.gz").read_bytes() == CONTENT
    assert file.read() == CONTENT
    assert server.asked == ["/missing", "/file"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, b"", 0), "HTTP Error 404"),
        ((200, CONTENT[:9], 9), "9 bytes with SHA-256"),
        ((200, CONTENT[:9], len(CONTENT)), "9 bytes with SHA-256|IncompleteRead"),
        ((200, CONTENT.upper(), len(CONTENT)), "35 bytes with SHA-256"),
        ((200, CONTENT * 1000, len(CONTENT) * 1000), "36 bytes with SHA-256"),
    ],
    ids=["missing", "truncated", "cut off", "wrong", "endless"],
)
def test_bad_download_is_refused_and_leaves_nothing(server, answer, reason):
    server.answers["/file"] = answer
    with pytest.raises(MissingFile, match=reason) as caught:
        data_file(server.url + "file").read()
    assert server.url in str(caught.value)
    assert SHA256 in str(caught.value)
    assert not [path for path in data_cache().rglob("*") if path.is_file()]


def test_an_unreachable_server_is_named():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(MissingFile, match="refused"):
            data_file(f"http://127.0.0.1:{unused.getsockname()[1]}/file").read()


def test_wrong_mnist_names_the_file(tmp_path):
    (tmp_path / "data" / "mnist").mkdir()
    (tmp_path / "data" / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"half")
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz must be 9,912,422 bytes .*, got 4 bytes"):
        next(MNISTGlimpses().test(1))


# Formats


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def pgm(kind, array, comment=b""):
    body = array.tobytes() if kind == b"P5" else b"\n".join(b" ".join(b"%d" % x for x in row) for row in array)
    return kind + b"\n" + comment + b"%d %d\n255\n" % array.shape[::-1] + body


images = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32)).map(
    lambda n: np.random.default_rng(n[2]).integers(0, 256, n[:2], dtype=np.uint8)
)
kinds = st.sampled_from([b"P2", b"P5"])


def damaged(content):
    """Strategy for damaged content: cuts, changed bytes and additions."""
    n = len(content)
    return st.one_of(
        st.integers(0, n - 1).map(lambda cut: content[:cut]),
        st.tuples(st.integers(0, n - 1), st.integers(0, 255)).map(
            lambda at: content[: at[0]] + bytes([at[1]]) + content[at[0] + 1 :]
        ),
        st.binary(min_size=1, max_size=5).map(lambda more: content + more),
        st.binary(max_size=60),
    )


def reads_or_refuses(read, *arguments):
    """Result of `read`, or None after an `InputError` of one line."""
    try:
        return read(*arguments)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert "must be" in message
    return None


@given(images)
def test_idx_is_read(image):
    assert (read_idx(gzip.compress(idx(image)), "file", 2) == image).all()


@given(st.data(), images)
def test_damaged_idx_is_read_or_refused(data, image):
    whole = idx(image)
    inside = gzip.compress(data.draw(damaged(whole)))
    outside = data.draw(damaged(gzip.compress(whole)))
    for content in (inside, outside):
        array = reads_or_refuses(read_idx, content, "file", 2)
        assert array is None or array.ndim == 2


@given(kinds, images)
def test_pgm_is_read(kind, image):
    assert (read_pgm(pgm(kind, image, comment=b"# made by hand\n"), "file") == image).all()


@given(st.data(), kinds, images)
def test_damaged_pgm_is_read_or_refused(data, kind, image):
    array = reads_or_refuses(read_pgm, data.draw(damaged(pgm(kind, image))), "file")
    assert array is None or (array.ndim == 2 and array.dtype == np.uint8)


def test_pgm_with_another_white_is_scaled():
    assert read_pgm(b"P2 3 1 15 0 3 15", "file").tolist() == [[0, 51, 255]]
    with pytest.raises(InputError, match="file must be an image with values up to 15, got 16"):
        read_pgm(b"P2 1 1 15 16", "file")


@given(st.data())
def test_damaged_images_of_other_formats_are_read_or_refused(data):
    Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra vision")
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "png")
    whole = file.getvalue()
    assert (read_image(whole, "file") == np.arange(64).reshape(8, 8)).all()
    array = reads_or_refuses(read_image, data.draw(damaged(whole)), "file")
    assert array is None or array.ndim == 2


@given(st.data())
def test_damaged_lists_are_read_or_refused(tmp_path, data):
    whole = b"7\t( ( ( [MAX 7 ) 4 ) ] )\n2\t[MED 1 [SM 6 7 ] ]\n"
    path = tmp_path / "lists.tsv.gz"
    for content in (gzip.compress(data.draw(damaged(whole))), data.draw(damaged(gzip.compress(whole)))):
        path.write_bytes(content)
        for _, words in reads_or_refuses(lambda: list(read_examples(path))) or []:
            reads_or_refuses(evaluate, words)


def test_an_invalid_line_of_lists_is_named(tmp_path):
    path = tmp_path / "lists.tsv"
    path.write_text("7\t[MAX 7 4 ]\n12 [MIN 1 2 ]\n")
    with pytest.raises(InputError, match=r"line 2 of .*lists.tsv must be a digit, a tab and words, got '12 \[MIN"):
        list(read_examples(path))
    with pytest.raises(InputError, match="No such file"):
        list(read_examples(tmp_path / "none"))


def test_truncated_gzip_is_refused():
    with pytest.raises(InputError, match="file must be a whole gzip file, got 30 bytes: Compressed file ended"):
        gunzip(gzip.compress(np.random.default_rng(0).bytes(100))[:30], "file")


# Scaling


@given(images, st.integers(1, 9), st.integers(1, 9))
def test_scaling_by_area_equals_repetition_and_averaging(image, height, width):
    old_height, old_width = image.shape
    fine = image.repeat(height, axis=0).repeat(width, axis=1).astype(float)
    mean = fine.reshape(height, old_height, width, old_width).mean(axis=(1, 3))
    assert np.abs(scale_by_area(image, height, width) - mean).max() <= 0.5 + 1e-9


# Folders of faces


def write_faces(folder, people=5):
    random = np.random.default_rng(0)
    for person in range(people):
        (folder / f"p{person}").mkdir(parents=True)
        for mood in ("glad", "sad"):
            image = random.integers(0, 256, (50, 40), dtype=np.uint8)
            (folder / f"p{person}" / f"{mood}.pgm").write_bytes(pgm(b"P5", image))
    (folder / "notes.txt").write_text("not an image")


def test_any_folder_of_labelled_images_is_a_task(tmp_path):
    write_faces(tmp_path / "faces")
    task = FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood")
    assert task.labels == ("glad", "sad")
    assert [len(people) for people in task.people] == [3, 1, 1]
    assert [len(part.targets) for part in task.sets] == [6, 2, 2]


def test_facts_change_with_the_pixels_of_a_face(tmp_path):
    write_faces(tmp_path / "faces")
    before = FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood").facts()
    assert before == FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood", fold=1).facts()
    image = tmp_path / "faces" / "p0" / "sad.pgm"
    image.write_bytes(image.read_bytes()[:-1] + b"\x07")
    assert before != FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood").facts()


def test_an_archive_and_its_folder_are_the_same_task(tmp_path):
    write_faces(tmp_path / "faces")
    with tarfile.open(tmp_path / "faces.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "faces", arcname="faces")
    packed, loose = (FaceGlimpses(str(tmp_path / name), PERSON, "mood") for name in ("faces.tar.gz", "faces"))
    assert packed.people == loose.people
    assert all((a.views[0] == b.views[0]).all() for a, b in zip(packed.faces, loose.faces, strict=True))


@pytest.mark.parametrize("people", [4, 5, 7])
def test_every_person_is_in_the_test_set_of_one_fold(tmp_path, people):
    write_faces(tmp_path / "faces", people)
    folds = [FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood", folds=4, fold=n) for n in range(4)]
    for task in folds:
        assert sum(map(len, task.people)) == len(set().union(*task.people)) == people
    assert len(set().union(*(task.people[2] for task in folds))) == people
    assert FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood", folds=4, fold=4).people == folds[0].people


def test_training_images_are_augmented_by_shifts_and_reflections(tmp_path):
    """The box of an image, the box moved by one pixel in eight directions, and the mirror image of each."""
    write_faces(tmp_path / "faces")
    plain = {"folder": str(tmp_path / "faces"), "pattern": PERSON, "label": "mood"}
    more = FaceGlimpses(**plain, box=(1, 2, 25, 26), shift=1, mirrored=True)
    assert [len(part.targets) for part in more.sets] == [6 * 18, 2, 2]
    for up, left in product((-1, 0, 1), (-1, 0, 1)):
        moved = FaceGlimpses(**plain, box=(1 + left, 2 + up, 25 + left, 26 + up))
        for face, other in zip(more.faces, moved.faces, strict=True):
            assert any((view == other.views[0]).all() for view in face.views)
            assert any((view == other.views[0][:, ::-1]).all() for view in face.views)
    whole = FaceGlimpses(**plain)
    assert all(
        (a.views[0] == b.views[0]).all()
        for a, b in zip(whole.faces, FaceGlimpses(**plain, box=(0, 0, 40, 50)).faces, strict=True)
    )


TAR_FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def tar(names, kind, form=tarfile.PAX_FORMAT):
    """Archive of small images. `USTAR_FORMAT` limits the length of names."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{kind}", format=form) as archive:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = len(content := pgm(b"P5", np.full((4, 4), number, np.uint8)))
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@given(st.data(), st.sampled_from(TAR_FORMATS), st.sampled_from(["", "gz"]))
@settings(max_examples=100)
def test_damaged_archive_is_read_or_refused(tmp_path, data, form, kind):
    path = tmp_path / "some.tar"
    path.write_bytes(data.draw(damaged(tar([f"p{person}/glad.pgm" for person in range(4)], kind, form))))
    reads_or_refuses(lambda: FaceGlimpses(str(path), PERSON, "mood").sets)


@pytest.mark.parametrize("form", TAR_FORMATS)
def test_archives_are_read_as_by_the_standard_library(tmp_path, form):
    long = [] if form == tarfile.USTAR_FORMAT else ["x" * 300 + "/ä.pgm", "d/" * 150 + "y.pgm"]
    whole = tar(["a.pgm", "b/" * 40 + "c" * 90, *long], "", form)
    file = io.BytesIO(whole)
    with tarfile.open(fileobj=file) as archive:
        want = [(member.name, archive.extractfile(member).read()) for member in archive]
    with tarfile.open(fileobj=file, mode="a:", format=form) as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("z" * (90 if not long else 200))
            member.type, member.linkname = kind, "a.pgm"
            archive.addfile(member)
    (tmp_path / "some.tar").write_bytes(file.getvalue())
    assert list(members(tmp_path / "some.tar", lambda name: True)) == want
    assert list(members(tmp_path / "some.tar", "a.pgm".__eq__)) == want[:1]


def header(name, kind, size, **fields):
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse():
    """Archive of 2 kB with a stated size of 64 GB, in the format of GNU."""
    block = bytearray(header("p1/glad.pgm", tarfile.GNUTYPE_SPARSE, 0))
    block[483:495] = b"%011o\0" % 8**11  # the size with its holes
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(1024)


def pax(*records):
    texts = [f"{key}={value}\n" for key, value in records]
    content = "".join(f"{len(text) + 3 + (len(text) > 96)} {text}" for text in texts).encode()
    return header("x", tarfile.XHDTYPE, len(content)) + content.ljust(512, b"\0") + header("p1/glad.pgm", b"0", 0)


HOSTILE = {
    "sparse": (sparse(), "none in|sparse"),
    "sparse by records": (pax(("GNU.sparse.size", 8**11)), "a member is sparse"),
    "longer than the archive": (header("p1/glad.pgm", b"0", 8**11), "a member of 8,589,934,592 bytes is cut off"),
    "negative size": (header("p1/glad.pgm", b"0", -512), "is cut off"),
    "endless records": (header("x", tarfile.XHDTYPE, 512) + b"9" * 512, "an extended header is damaged|int"),
    "endless name": (
        header("x", tarfile.GNUTYPE_LONGNAME, 10_240) + b"a" * 10_240 + header("x", b"0", 0),
        "a name has 10,240 characters",
    ),
    "names of names": (3_000 * header("x", tarfile.GNUTYPE_LONGNAME, 0), "none in"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_archive_is_refused_in_little_memory(tmp_path, attack):
    content, reason = HOSTILE[attack]
    path = tmp_path / "some.tar"
    path.write_bytes(content)
    task = FaceGlimpses(str(path), PERSON, "mood")
    with bounded_memory(20 * len(content) + 1_000_000), pytest.raises(InputError, match=reason):
        task.sets  # noqa: B018


@contextlib.contextmanager
def bounded_memory(limit):
    """Asserts that Python allocates at most `limit` bytes at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_a_decompression_bomb_is_refused_in_little_memory():
    bomb = gzip.compress(bytes(200_000_000))
    assert len(bomb) < 200_000
    with (
        bounded_memory(20_000_000),
        pytest.raises(InputError, match="file must be a file of at most 1,000,000 bytes when un"),
    ):
        gunzip(bomb, "file", limit=1_000_000)


@pytest.mark.parametrize("size", [(10**6, 1), (1, 10**6), (10**9, 10**9), (2**14, 2**14), (0, 5), (0, 0)])
def test_images_of_absurd_size_are_refused(size):
    with pytest.raises(InputError, match="file must be"):
        read_pgm(b"P5 %d %d 255 " % size + b"x" * min(size[0] * size[1], 10**6), "file")


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_images_of_sixteen_bits_are_read_as_their_upper_bytes(channels):
    Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra vision")
    file, levels = io.BytesIO(), np.arange(0, 1 << 16, 273, dtype=np.uint16).reshape(-1, 1)
    Image.fromarray(levels).save(file, "png")
    read = read_channels(file.getvalue(), "x", channels)
    assert np.array_equal(read, np.repeat((levels >> 8)[None], channels or 1, axis=0))


def test_floating_pixels_are_refused():
    Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra vision")
    file = io.BytesIO()
    Image.fromarray(np.ones((2, 2), np.float32)).save(file, "tiff")
    with pytest.raises(InputError, match="x must be an image of 8 or 16 bits, got pixels of mode F"):
        read_channels(file.getvalue(), "x", 1)


def test_compressed_image_of_absurd_size_is_refused():
    Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra vision")
    file = io.BytesIO()
    Image.new("1", (8_000, 8_000)).save(file, "png")
    with bounded_memory(20_000_000), pytest.raises(InputError, match="of at most 33,554,432 pixels"):
        read_image(file.getvalue(), "file")


def test_pipes_are_refused_by_all_readers(tmp_path):
    pipe = tmp_path / "pipe.pgm"
    os.mkfifo(pipe)
    for read in (
        lambda path: Text(str(path)).training,
        lambda path: list(read_examples(path)),
        lambda path: FaceGlimpses(str(path)).faces,
    ):
        with pytest.raises(InputError, match=f"a regular file, got {pipe}"):
            read(pipe)
    (tmp_path / "p").mkdir()
    os.mkfifo(tmp_path / "p" / "glad.pgm")
    with pytest.raises(InputError, match="whose paths match pattern, got none"):
        FaceGlimpses(str(tmp_path), PERSON, "mood").faces  # noqa: B018


def test_long_lists_are_evaluated_in_linear_time():
    """Quadratic time would take minutes for 200,000 words."""
    words = ["[MAX", "1"] * 50_000 + ["7"] + ["]"] * 50_000
    assert evaluate(words) == 7
    with pytest.raises(InputError, match="list must be one whole list"):
        evaluate(words[:-1])


def test_truncated_archive_is_refused(tmp_path):
    write_faces(tmp_path / "faces")
    with tarfile.open(tmp_path / "faces.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "faces", arcname="faces")
    whole = (tmp_path / "faces.tar.gz").read_bytes()
    (tmp_path / "faces.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"faces\.tar\.gz must be a whole gzip file"):
        FaceGlimpses(str(tmp_path / "faces.tar.gz"), PERSON, "mood").labels  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": "nowhere"}, "data file must be a readable file, got nowhere: No such file"),
        ({"pattern": "("}, "pattern must be a regular expression"),
        ({"pattern": "(?P<pose>.)"}, "pattern must be a pattern with a group"),
        ({"pattern": "(?P<person>.)"}, "label must be one of no groups of pattern, got 'pose'"),
        ({"label": "age"}, "label must be one of expression, eyes, pose groups of pattern, got 'age'"),
        ({"box": (5, 0, 5, 9)}, "box must be left, top, right, bottom with left < right"),
        ({"shift": -1}, "shift must be from 0 to 100, got -1"),
        ({"folds": 2}, "folds must be at least 3, got 2"),
        ({"fold": -1}, "fold must be at least 0, got -1"),
    ],
)
def test_invalid_options_of_faces_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        FaceGlimpses(**options).labels  # noqa: B018


@pytest.mark.parametrize(
    ("people", "pattern", "message"),
    [
        (2, PERSON, "folder must be a folder with images of at least 3 people, got 2"),
        (
            3,
            r"(?P<person>z\w+)/(?P<mood>\w+)",
            "folder must be a folder with images whose paths match pattern, got none",
        ),
        (
            3,
            r"(?P<person>\w+)/(?P<mood>glad)?\w*\.pgm",
            "pattern must be a pattern whose groups person and mood take part",
        ),
        (3, r"(?P<mood>\w)otes(?P<person>.)txt", "notes.txt must be"),
    ],
)
def test_folders_without_faces_are_refused(tmp_path, people, pattern, message):
    write_faces(tmp_path / "faces", people)
    with pytest.raises(InputError, match=message):
        FaceGlimpses(str(tmp_path / "faces"), pattern, "mood").people  # noqa: B018


def test_a_box_beyond_an_image_is_refused_with_the_image(tmp_path):
    write_faces(tmp_path / "faces")
    with pytest.raises(InputError, match="pgm must be at least 41 x 50, for box, got 40 x 50"):
        FaceGlimpses(str(tmp_path / "faces"), PERSON, "mood", box=(0, 0, 41, 50)).faces  # noqa: B018
