"""`netspec zoo`: the models that netspec ships, and copies that work in their new folder."""

from __future__ import annotations

import os

import pytest

from netspec.errors import InputError, Location, RunError
from netspec.exchange.files import new_folder
from netspec.tools.zoo import ZooModel


def test_list(netspec):
    result = netspec("zoo", "list", "--json").json
    assert "lenet_mnist" in [model["name"] for model in result]
    assert all(model["files"] and model["description"] for model in result)
    assert "lenet_mnist" in netspec("zoo", "list").out


def test_show(netspec):
    result = netspec("zoo", "show", "lenet_mnist")
    assert "parameters: 431,080" in result.out
    assert "net.yaml" in result.out
    assert "\n  netspec time lenet_mnist   # training steps on synthetic inputs, without the data\n" in result.out
    assert netspec("zoo", "show", "lenet_mnist", "--json").json["parameters"] == 431_080


def test_an_unknown_model(netspec):
    assert "did you mean `lenet_mnist`?" in netspec("zoo", "show", "lenet_mnits").err
    assert "did you mean `lenet_mnist`?" in netspec("zoo", "copy", "lenet", "my_net").err


def test_missing_data_that_a_script_of_the_model_writes(netspec, work):
    result = netspec("train", "unet")
    assert result.status == 2
    assert "images with masks that make_images.py writes" in result.err
    assert "netspec zoo copy unet` copies make_images.py." in result.err


def test_missing_data_that_netspec_fetches(netspec, work, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "cache"))
    result = netspec("train", "char_lstm")
    assert result.status == 2
    assert f"got: nothing at {work}/cache/netspec/data/tinyshakespeare/tinyshakespeare.txt" in result.err
    assert "fetched by `netspec data get tinyshakespeare`." in result.err


def test_a_copy_can_be_checked_and_changed(netspec, work):
    result = netspec.ok("zoo", "copy", "lenet_mnist", "my nets/lenet")
    assert "netspec train 'my nets/lenet/train.yaml'" in result.out
    netspec.ok("check", "my nets/lenet/net.yaml", "my nets/lenet/train.yaml")
    card = (work / "my nets" / "lenet" / "README.md").read_text()
    assert "\n    netspec train 'my nets/lenet'\n" in card
    for kind in ("net", "train"):
        first = (work / "my nets" / "lenet" / f"{kind}.yaml").read_text().splitlines()[0]
        assert first == f"# yaml-language-server: $schema=.schema/{kind}.json"
        assert (work / "my nets" / "lenet" / ".schema" / f"{kind}.json").is_file()
    net = work / "my nets" / "lenet" / "net.yaml"
    net.write_text(net.read_text().replace("filters: 20", "filters: 10"))
    assert net.stat().st_mode & 0o600 == 0o600


def test_a_copy_is_shown_and_verified_by_its_path(netspec, work):
    netspec.ok("zoo", "copy", "autoencoder_mnist", "nets/copy")
    shown = netspec.ok("zoo", "show", "nets/copy")
    assert "\nnext:\n  netspec train nets/copy\n" in shown.out
    verified = netspec("zoo", "verify", "nets/copy/", "data.test.limit=100", "--json")
    assert {check["model"] for check in verified.json} == {"nets/copy"}
    assert {check["name"] for check in verified.json if check["status"] == "failed"} <= {"results"}, "of fewer samples"
    (work / "nets/copy/card.yaml").unlink()
    refused = netspec("zoo", "verify", "nets/copy")
    assert refused.status == 2
    assert "error: nets/copy has no card.yaml with the facts about its model\n" in refused.err


def test_commands_in_the_card_of_a_copy_use_the_copy(netspec, work):
    netspec.ok("zoo", "copy", "text_cnn", "reviews/net")
    card = (work / "reviews" / "net" / "README.md").read_text()
    assert "python reviews/net/make_reviews.py " in card
    assert "netspec train reviews/net vars.folder=reviews\n" in card
    assert "`netspec predict reviews/net --input sentences.txt`" in card
    assert "my_net" not in card


def test_paths_that_leave_the_model_still_lead_there(work):
    model = work / "zoo" / "model"
    (model / "deep").mkdir(parents=True)
    (work / "zoo" / "data.csv").write_text("1,2\n")
    (work / "zoo" / "schema.json").write_text("{}")
    (model / "net.yaml").write_text("# yaml-language-server: $schema=../schema.json\nname: a\n")
    (model / "train.yaml").write_text("net: net.yaml\npath: '../data.csv'\nother: {path: ../missing.csv}\n")
    (model / "deep" / "more.yaml").write_text("[../../data.csv, ../net.yaml]\n")
    (model / "deep" / "net.yaml").write_text("# $schema=../../schema.json\n")
    (model / "weights.h5").write_bytes(b"\x00../data.csv")
    ZooModel("model", model).copy(work / "copy")
    root = (work / "zoo").resolve().as_posix()
    assert (work / "copy" / "net.yaml").read_text() == "# yaml-language-server: $schema=.schema/schema.json\nname: a\n"
    assert (work / "copy" / ".schema" / "schema.json").read_text() == "{}"
    assert (work / "copy" / "deep" / "net.yaml").read_text() == "# $schema=../.schema/schema.json\n"
    assert (work / "copy" / "train.yaml").read_text() == (
        f"net: net.yaml\npath: '{root}/data.csv'\nother: {{path: ../missing.csv}}\n"
    )
    assert (work / "copy" / "deep" / "more.yaml").read_text() == f"[{root}/data.csv, ../net.yaml]\n"
    assert (work / "copy" / "weights.h5").read_bytes() == b"\x00../data.csv"


def test_a_new_folder_appears_complete_or_not_at_all(tmp_path):
    target = tmp_path / "a"

    def fill() -> None:
        with new_folder(target) as staged:
            (staged / "half").write_text("half")
            raise OSError(28, "No space left on device", str(staged / "half"))

    with pytest.raises(RunError) as error:
        fill()
    (problem,) = error.value.problems
    assert (problem.message, problem.got) == (f"cannot write {target}", "No space left on device")
    with pytest.raises(InputError) as wrong, new_folder(target) as staged:
        raise InputError(f"{staged / 'net.yaml'} is wrong", location=Location(f"{staged}/net.yaml", 1, 1))
    assert wrong.value.render() == f"{target}/net.yaml:1:1: error: {target / 'net.yaml'} is wrong"
    with pytest.raises(KeyboardInterrupt), new_folder(target):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b").mkdir()
    with new_folder(tmp_path / "b") as staged:
        (staged / "file").touch()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["file"]
    assert os.access(tmp_path / "b", os.R_OK | os.X_OK)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_new_folder_refuses_an_existing_path(tmp_path, kind):
    target = tmp_path / "a"
    match kind:
        case "file":
            target.touch()
        case "folder":
            (target / "inside").mkdir(parents=True)
        case "link":
            target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"a file|not empty"), new_folder(target):
        pass
