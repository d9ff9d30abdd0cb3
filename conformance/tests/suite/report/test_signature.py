"""Signatures of reports."""

from __future__ import annotations

import builtins
import stat
from pathlib import Path
from typing import Any

import pytest

from tilewright_conformance.suite import cli
from tilewright_conformance.suite.report import document, signature
from tilewright_conformance.suite.report.document import Document, ReportError, write

pytest.importorskip("cryptography")


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    signature.new_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


def test_a_signature_is_of_one_report_and_one_key(
    report: Document, key: Path, tmp_path: Path
) -> None:
    signed = signature.signed(report, key)
    assert signature.signer(signed) == signed["signature"]["key"] and signature.signer(report) == ""
    assert document.checksum(signed) == report["checksum"]
    edited = {**signed, "host": {**signed["host"], "numpy": "3.0"}}
    with pytest.raises(ReportError, match="the checksum is not that of the report's content"):
        signature.signer(edited)
    edited["checksum"] = document.checksum(edited)
    with pytest.raises(ReportError, match="the signature is not one of this report by the key"):
        signature.signer(edited)
    other = signature.new_key(tmp_path / "other.pem")
    signed["signature"]["key"] = other
    with pytest.raises(ReportError, match=f"by the key {other}"):
        signature.signer(signed)


def test_keys_are_private_and_not_overwritten(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(signature.KeyFileError, match="is there already"):
        signature.new_key(key)


def test_what_is_no_key(tmp_path: Path, report: Document) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(signature.KeyFileError, match="is no PEM file of a private key"):
        signature.signed(report, tmp_path / "text")
    with pytest.raises(
        signature.KeyFileError, match="a public key is 64 hexadecimal digits or a PEM file"
    ):
        signature.public_key(str(tmp_path / "text"))


def test_a_public_key_may_be_a_file(key: Path, tmp_path: Path, report: Document) -> None:
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key.read_bytes(), None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "public.pem").write_bytes(
        private.public_key().public_bytes(serialization.Encoding.PEM, form)
    )
    assert signature.public_key(str(tmp_path / "public.pem")) == signature.signer(
        signature.signed(report, key)
    )


def test_the_commands(report: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    write(report, path)
    assert run("keygen", tmp_path / "own.pem") == cli.GOOD
    public = capsys.readouterr().out.strip()
    assert run("verify", path, "--signed-by", public) == cli.WRONG
    assert f"refused: it is not signed, and asked for is {public}" in capsys.readouterr().out
    assert run("sign", path, "--key", tmp_path / "own.pem") == cli.GOOD
    assert run("verify", path, "--signed-by", public) == cli.GOOD
    assert f"signed by {public}" in capsys.readouterr().out
    assert run("verify", path, "--signed-by", "0" * 64) == cli.WRONG
    assert run("verify", path, "--signed-by", "0") == cli.USAGE


def test_a_key_is_not_written_over(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = key.read_bytes()
    assert run("keygen", key) == cli.USAGE
    error = capsys.readouterr().err
    assert (
        f"keygen: {key} is there already" in error
        and "give the new key another name" in error
        and "Errno" not in error
    )
    assert key.read_bytes() == kept


def test_the_scoreboard_shows_no_signature_that_is_not_right(
    report: Document, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = signature.signed(report, key)
    write(good, tmp_path / "good.json")
    write(
        {**good, "signature": {**good["signature"], "value": "0" * 128}}, tmp_path / "forged.json"
    )
    assert (
        run(
            "scoreboard",
            "--site",
            tmp_path / "site",
            tmp_path / "good.json",
            tmp_path / "forged.json",
        )
        == cli.WRONG
    )
    assert (
        "forged.json: skipped: the signature is not one of this report" in capsys.readouterr().err
    )
    assert (tmp_path / "site" / "index.html").read_text().count(
        good["signature"]["key"][:8] + "</td>"
    ) == 1


def test_the_scoreboard_has_a_report_once(
    report: Document, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, signed = tmp_path / "plain.json", tmp_path / "signed.json"
    write(report, plain)
    write(signature.signed(report, key), signed)
    for order in ((plain, signed), (signed, plain)):
        assert run("scoreboard", "--html", *order) == cli.GOOD
        page = capsys.readouterr().out
        assert (
            page.count(report["checksum"]) == 1
            and signature.signed(report, key)["signature"]["key"] in page
        )


def test_without_the_package_reports_are_checked_all_the_same(
    report: Document,
    key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(signature.signed(report, key), tmp_path / "report.json")
    importing = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return importing(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert run("verify", tmp_path / "report.json") == cli.GOOD
    assert (
        "its signature was not checked: signatures need the package cryptography"
        in capsys.readouterr().out
    )
    assert run("verify", tmp_path / "report.json", "--signed-by", "0" * 64) == cli.USAGE
    assert "pip install 'tilewright-conformance[signatures]'" in capsys.readouterr().err
    assert run("scoreboard", tmp_path / "report.json") == cli.USAGE, (
        "what is not checked is not shown"
    )
