"""Provenance of the installed distributions in a report."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from tilewright_conformance.suite.provenance import (
    WheelError,
    built_on_the_core,
    capabilities_from_json,
    capabilities_json,
    distribution_facts,
    provenance,
)
from tilewright_conformance.suite.session import Subject


def install(folder: Path, origin: dict[str, object]) -> Path:
    """A distribution as an installer leaves it; gives its one module."""
    module = folder / "made_up" / "module.py"
    module.parent.mkdir()
    module.write_text("x = 1\n")
    digest = (
        base64.urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    )
    info = folder / "made_up-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.2\n")
    (info / "RECORD").write_text(
        f"made_up/module.py,sha256={digest},6\nmade_up-1.2.dist-info/METADATA,,\n"
        "made_up-1.2.dist-info/RECORD,,\n"
    )
    (info / "direct_url.json").write_text(json.dumps(origin))
    return module


def test_changed_files_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = install(
        tmp_path,
        {"url": "file:///made_up-1.2.whl", "archive_info": {"hashes": {"sha256": "ab" * 32}}},
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = distribution_facts("made-up")
    assert {**before, "content": ""} == {
        "name": "made-up",
        "version": "1.2",
        "editable": False,
        "wheel": "ab" * 32,
        "content": "",
        "modified": [],
    }
    module.write_text("x = 2\n")
    after = distribution_facts("made-up")
    assert after["modified"] == ["made_up/module.py"] and after["content"] != before["content"]
    module.unlink()
    assert distribution_facts("made-up")["modified"] == ["made_up/module.py"]


def test_what_is_imported_from_elsewhere_is_of_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "installed" / "made_up"
    package.parent.mkdir()
    module = install(package.parent, {"archive_info": {"hashes": {"sha256": "ab" * 32}}})
    (package / "__init__.py").write_text("")
    record = package.parent / "made_up-1.2.dist-info" / "RECORD"
    record.write_text(record.read_text() + "made_up/__init__.py,,\n")
    monkeypatch.syspath_prepend(package.parent)
    assert distribution_facts("made-up")["wheel"] == "ab" * 32
    other = tmp_path / "made_up"
    other.mkdir()
    (other / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        module.exists()
        and distribution_facts("made-up")["wheel"] == ""
        and distribution_facts("made-up")["modified"] == []
    )


def wheel(folder: Path, content: str = "x = 1\n") -> Path:
    """The wheel that ``install`` installs, where the content is the same."""
    digest = (
        base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
    )
    path = folder / "made_up-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("made_up/module.py", content)
        archive.writestr(
            "made_up-1.2.dist-info/RECORD",
            f"made_up/module.py,sha256={digest},6\nmade_up-1.2.dist-info/RECORD,,\n",
        )
    return path


def test_a_wheel_that_is_named_has_to_be_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, {})
    monkeypatch.syspath_prepend(tmp_path)
    assert distribution_facts("made-up")["wheel"] == ""
    path = wheel(tmp_path)
    assert (
        distribution_facts("made-up", [path])["wheel"]
        == hashlib.sha256(path.read_bytes()).hexdigest()
    )
    with pytest.raises(
        WheelError,
        match=r"is not the wheel that made-up 1\.2 was installed from: made_up/module\.py differ",
    ):
        distribution_facts("made-up", [wheel(tmp_path, "x = 2\n")])
    path.write_bytes(b"text")
    with pytest.raises(WheelError, match="is no wheel"):
        distribution_facts("made-up", [path])
    with pytest.raises(WheelError, match="is not named like a wheel"):
        distribution_facts("made-up", [tmp_path / "made_up.zip"])
    with pytest.raises(WheelError, match="is the wheel of nothing that takes part"):
        provenance(Subject("cpu"), [path])


def test_editable_installations_have_the_digest_of_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "project" / "src" / "made_up" / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    install(tmp_path, {"url": (tmp_path / "project").as_uri(), "dir_info": {"editable": True}})
    monkeypatch.syspath_prepend(tmp_path)
    before = distribution_facts("made-up")
    source.write_text("x = 2\n")
    assert before["editable"] and not before["modified"]
    assert distribution_facts("made-up")["content"] != before["content"]


def test_a_plugin_that_no_distribution_ships() -> None:
    assert distribution_facts("no-such-distribution")["version"] == "not installed"


def test_a_backend_is_made_of_what_it_requires_on_the_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of what any program requires, nor of what an extra brings; in a circle each is named
    once."""
    for name, requires in {
        "vega": (
            "tilewright>=0.1",
            "Vega_Emit[fast]>=1; python_version>='3'",
            "numpy",
            "vega-tests; extra == 'test'",
        ),
        "vega-emit": ("tilewright", "vega-parts", "vega"),
        "vega-parts": ("tilewright",),
        "vega-tests": ("tilewright",),
    }.items():
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            "".join(
                (
                    "Metadata-Version: 2.1\n",
                    f"Name: {name}\nVersion: 1.0\n",
                    *(f"Requires-Dist: {text}\n" for text in requires),
                )
            )
        )
    monkeypatch.syspath_prepend(tmp_path)
    assert built_on_the_core("vega") == ["vega", "vega-emit", "vega-parts"]
    assert built_on_the_core("tilewright-cpu") == ["tilewright-cpu"]
    assert built_on_the_core("no-such-distribution") == ["no-such-distribution"]


def test_capabilities_survive_the_way_through_json() -> None:
    for name in ("cpu", "reference"):
        capabilities = Subject(name).capabilities
        assert (
            capabilities_from_json(json.loads(json.dumps(capabilities_json(capabilities))))
            == capabilities
        )


def test_device_and_versions_are_the_backends() -> None:
    about = provenance(Subject("cpu"))
    assert (
        about["backend"]["name"] == "cpu"
        and about["device"]["kind"] == "cpu"
        and about["device"]["properties"]["cores"] >= 1
    )
    assert about["core"]["ir"].count(".") == 1
