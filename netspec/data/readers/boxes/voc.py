"""Pascal VOC's annotations: an XML file for each image.

http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from netspec.data.file_kinds import IMAGES
from netspec.data.files import existing
from netspec.data.readers.boxes.annotated import AnnotatedBox, AnnotatedImage, AnnotationSet, Findings
from netspec.errors import InputError

MAX_BYTES = 2**24
"""Size of the largest file that is read."""
MAX_DEPTH = 20
CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclass
class Element:
    """An element of an XML file."""

    tag: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def child(self, tag: str) -> Element | None:
        """Return the first child with a tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def content(self, tag: str) -> str:
        """Return the text of the first child with a tag; empty if there is none."""
        child = self.child(tag)
        return "" if child is None else child.text.strip()


def parse_xml(path: Path) -> Element:
    """Parse an XML file. Raises `InputError` for damaged files, and for files that declare a document type.

    Without document types there are no entities: nothing is expanded, and no other file is read.
    """
    size = existing(path).stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"{path} is too large", expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,} bytes")
    parser = expat.ParserCreate()
    root = Element("", 0)
    stack = [root]

    def start(tag: str, attributes: Any) -> None:
        if len(stack) > MAX_DEPTH:
            raise InputError(f"{path}:{parser.CurrentLineNumber}: elements are nested too deeply",
                             expected=f"at most {MAX_DEPTH} levels")  # fmt: skip
        element = Element(tag, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def refuse(*_: Any) -> NoReturn:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: a document type is declared", expected="elements only",
                         hint="remove the line that begins with <!DOCTYPE")  # fmt: skip

    def text(data: str) -> None:
        stack[-1].text += data

    parser.buffer_text = True
    parser.StartElementHandler, parser.CharacterDataHandler = start, text
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise InputError(
            f"{path}:{error.lineno}: not valid XML", expected="a file of Pascal VOC annotations", got=str(error)
        ) from None
    return root.children[0]


def read_voc(files: list[Path], folder: Path, findings: Findings) -> AnnotationSet:
    """Read annotation files; the images are in `folder`. Adds problems to `findings`.

    Boxes are in pixels that are counted from 1, and contain their last row and column. Boxes marked as difficult are
    crowds. Classes are those that occur, sorted by name.
    """
    images = []
    for index, file in enumerate(files):
        root = parse_xml(file)
        image = AnnotatedImage(_image_of(file, root, folder), file.name)
        images.append(image)
        for element in root.children:
            if element.tag == "object":
                _add_box(file, element, image, index, findings)
    return AnnotationSet(images)


def _image_of(file: Path, root: Element, folder: Path) -> Path:
    """Return the image that an annotation file names, or else the image with the same name as the file."""
    named = folder / (root.content("filename") or f"{file.stem}.jpg")
    if named.is_file():
        return named
    candidates = (folder / f"{file.stem}{suffix}" for suffix in sorted(IMAGES.suffixes))
    return next((candidate for candidate in candidates if candidate.is_file()), named)


def _add_box(file: Path, element: Element, image: AnnotatedImage, index: int, findings: Findings) -> None:
    """Add a box to its image, or a problem."""
    position = f"{file.name}:{element.line}"
    bounds = element.child("bndbox")
    name, texts = element.content("name"), [] if bounds is None else [bounds.content(tag) for tag in CORNERS]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        expected = "`bndbox` with the numbers xmin, ymin, xmax, ymax"
        findings.add("an object has no valid box", expected, f"{texts or 'no `bndbox`'} at {position}", image=index)
        return
    if not name:
        findings.add("an object has no name", "the name of its class", position, image=index)
        return
    corners = (left - 1, top - 1, right, bottom)
    image.boxes.append(AnnotatedBox(name, corners, position, element.content("difficult") == "1"))
