"""Signatures of reports by Ed25519, which show who vouches for one.

They need the package ``cryptography``: ``pip install tilewright-conformance[signatures]``. A
signature is over the report's checksum, and so over all of it. It says that whoever has the private
key signed this report, and neither who that is nor that the report is true: a reader has the public
key from the vendor's own pages, and runs cases again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright_conformance.suite.report.document import FORMAT, Document, ReportError, checksum

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM = "ed25519"


class SignatureUnavailableError(ImportError):
    """The package that signs and checks is not installed."""


class KeyFileError(ValueError):
    """A file or text is no key, or a file is where a new key was to be; the message says which."""


def new_key(path: Path) -> str:
    """Write a new private key (PEM, readable by its owner alone), and return the public key in hex.

    Raises:
        KeyFileError: the file is there already: no key is overwritten.
    """
    serialization, ed25519 = _tools()
    key = ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{path} is there already, and what a lost key signed nobody can vouch for: give the "
            "new key another name"
        ) from None
    with open(descriptor, "wb") as file:
        file.write(text)
    return _public(key)


def signed(document: Document, key: Path) -> Document:
    """A copy of a report signed with the private key of a PEM file; an old signature is replaced.

    Raises:
        ReportError: the checksum is not that of the content.
        KeyFileError: the file holds no Ed25519 key without a password.
    """
    _check_content(document)
    private = _private(key)
    value = private.sign(_message(document))
    return {
        **document,
        "signature": {"algorithm": ALGORITHM, "key": _public(private), "value": value.hex()},
    }


def signer(document: Document) -> str:
    """The public key, in hexadecimal, whose signature a report has; empty where it has none.

    Raises:
        ReportError: it has one that is not of this content.
        SignatureUnavailableError: it has one, and what checks it is not installed.
    """
    signature = document.get("signature")
    if signature is None:
        return ""
    _, ed25519 = _tools()
    from cryptography.exceptions import InvalidSignature

    _check_content(document)
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["key"])).verify(
            bytes.fromhex(signature["value"]), _message(document)
        )
    except InvalidSignature:
        raise ReportError(
            f"the signature is not one of this report by the key {signature['key']}"
        ) from None
    return str(signature["key"])


def public_key(text: str) -> str:
    """A public key in hexadecimal, given as that or as the path of a PEM file.

    Raises:
        KeyFileError: it is neither.
    """
    if len(text) == 64 and all(letter in "0123456789abcdef" for letter in text.lower()):
        return text.lower()
    serialization, ed25519 = _tools()
    try:
        key = serialization.load_pem_public_key(Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise KeyFileError(
            f"a public key is 64 hexadecimal digits or a PEM file, not {text!r}: {error}"
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise KeyFileError(f"{text} holds another kind of key than Ed25519")
    return str(key.public_bytes_raw().hex())


def _private(path: Path) -> Ed25519PrivateKey:
    serialization, ed25519 = _tools()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (TypeError, ValueError) as error:
        raise KeyFileError(
            f"{path} is no PEM file of a private key without a password: {error}"
        ) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds another kind of key than Ed25519")
    return key


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def _message(document: Document) -> bytes:
    return f"{FORMAT} {document['checksum']}".encode()


def _check_content(document: Document) -> None:
    if checksum(document) != document["checksum"]:
        raise ReportError("the checksum is not that of the report's content")


def _tools() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SignatureUnavailableError(
            "signatures need the package cryptography, which is not installed: pip install "
            "'tilewright-conformance[signatures]'"
        ) from None
    return serialization, ed25519
