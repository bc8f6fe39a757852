"""The datasets that are known by name: their files and mirrors.

Sizes and SHA-256 of the archives are those of the original publishers, which other tools pin too (TensorFlow Datasets,
torchvision); those of the unpacked files were computed from these archives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedFile:
    """A file of a dataset, unpacked."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """A file to download, and the files of the set in it."""

    name: str
    size: int
    sha256: str
    folders: tuple[str, ...]
    """Addresses of the file without its name, ending in `/`, the preferred one first."""
    members: Mapping[str, PublishedFile]
    """The files by their names in a tar archive; for any other file, the only one."""

    @property
    def is_tar(self) -> bool:
        """Whether the file is a tar archive."""
        return self.name.endswith((".tar.gz", ".tgz"))

    @property
    def is_packed(self) -> bool:
        """Whether the file must be unpacked."""
        return self.name.endswith((".gz", ".tgz"))


@dataclass(frozen=True)
class KnownSet:
    """A dataset that can be downloaded by its name."""

    name: str
    about: str
    page: str
    """Address of the authors' description."""
    downloads: tuple[Download, ...]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the files of each split; empty for a set that no source reads by its name."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The class names of each label field."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Number of samples of each split."""

    @property
    def parts(self) -> dict[str, PublishedFile]:
        """All files of the set, by name."""
        return {part.name: part for download in self.downloads for part in download.members.values()}


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100_COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip

CIFAR100_FINE = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_MINDSPORE = "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/"
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_BATCHES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

CIFAR10 = KnownSet(
    "cifar10",
    "60,000 color images of 32 × 32 in 10 classes",
    _CIFAR_PAGE,
    (
        Download(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            (_TORONTO, "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/", _MINDSPORE),
            {
                f"cifar-10-batches-bin/{name}": PublishedFile(name, 30_730_000, digest)
                for name, digest in _BATCHES.items()
            },
        ),
    ),
    {"train": tuple(_BATCHES)[:5], "test": tuple(_BATCHES)[5:]},
    {"label": CIFAR10_CLASSES},
    {"train": 50_000, "test": 10_000},
)

CIFAR100 = KnownSet(
    "cifar100",
    "60,000 color images of 32 × 32 in 100 classes of 20 kinds",
    _CIFAR_PAGE,
    (
        Download(
            "cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            (_TORONTO, _MINDSPORE),
            {
                "cifar-100-binary/train.bin": PublishedFile(
                    "train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"
                ),
                "cifar-100-binary/test.bin": PublishedFile(
                    "test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"
                ),
            },
        ),
    ),
    {"train": ("train.bin",), "test": ("test.bin",)},
    {"coarse_label": CIFAR100_COARSE, "label": CIFAR100_FINE},
    {"train": 50_000, "test": 10_000},
)


def _fashion(name: str, size: int, digest: str, unpacked: int, content: str) -> Download:
    return Download(f"{name}.gz", size, digest, _FASHION, {name: PublishedFile(name, unpacked, content)})


FASHION_MNIST = KnownSet(
    "fashion_mnist",
    "70,000 gray images of 28 × 28 of clothes in 10 classes",
    "https://github.com/zalandoresearch/fashion-mnist",
    (
        _fashion(
            "train-images-idx3-ubyte",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        _fashion(
            "train-labels-idx1-ubyte",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        _fashion(
            "t10k-images-idx3-ubyte",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        _fashion(
            "t10k-labels-idx1-ubyte",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    {
        "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    },
    {"label": FASHION_CLASSES},
    {"train": 60_000, "test": 10_000},
)

TINYSHAKESPEARE = KnownSet(
    "tinyshakespeare",
    "1,115,394 characters of Shakespeare's plays",
    "https://github.com/karpathy/char-rnn",
    (
        Download(
            "input.txt",
            1_115_394,
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
            {
                "input.txt": PublishedFile(
                    "tinyshakespeare.txt", 1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
                )
            },
        ),
    ),
)

KNOWN_SETS = {dataset.name: dataset for dataset in (CIFAR10, CIFAR100, FASHION_MNIST, TINYSHAKESPEARE)}
