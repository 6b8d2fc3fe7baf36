"""cluster.yaml against Ray's own schema, and what that schema does not look at. No network."""

from __future__ import annotations

import copy
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
PATH = REPOSITORY / "cluster.yaml"

Config = dict[str, Any]


def validated(config: Config) -> Config:
    """The configuration as `ray up` completes and checks it (Ray has no public call for it)."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return dict(prepared)


def commands(config: Config) -> list[str]:
    """Every shell command of the file."""
    return [
        command
        for section, value in config.items()
        if section.endswith("_commands")
        for command in value
    ]


def words(config: Config, program: str) -> list[list[str]]:
    """The arguments of each call of a program, such as "ray start"."""
    found = [command.partition(f"{program} ")[2] for command in commands(config)]
    return [shlex.split(text) for text in found if text]


@pytest.fixture(scope="module")
def config() -> Config:
    return dict(yaml.safe_load(PATH.read_text(encoding="utf-8")))


@pytest.fixture
def environment(config: Config, tmp_path: Path) -> dict[str, str]:
    """What the settings command, run by a shell, makes every node's environment."""
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    subprocess.run(["bash", "-c", f"({config['setup_commands'][0]})"], env=home, check=True)
    shell = "set -a; . ~/cluster.env; env -0"
    output = subprocess.run(["bash", "-c", shell], env=home, check=True, capture_output=True)
    return dict(line.split("=", 1) for line in output.stdout.decode().split("\0") if line)


def test_ray_accepts_it(config: Config) -> None:
    prepared = validated(config)
    assert prepared["available_node_types"]["head"]["max_workers"] == 0


def test_nothing_is_placed_on_the_head(config: Config) -> None:
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"] == {"CPU": 0, "GPU": 0}
    [start] = [start for start in words(config, "ray start") if "--head" in start]
    assert {"--num-cpus=0", "--num-gpus=0"} <= set(start)


def test_workers_with_gpus_come_from_zero_and_go(config: Config) -> None:
    types = dict(config["available_node_types"])
    del types[config["head_node_type"]]
    assert types
    for worker in types.values():
        assert worker["min_workers"] == 0
        assert 0 < worker["max_workers"] <= config["max_workers"]
        # Ray must know without a running node that a new one would help.
        assert worker["resources"]["GPU"] >= 1
        assert worker["resources"]["CPU"] >= 1
    assert 0 < config["idle_timeout_minutes"] <= 30


def test_what_the_schema_misses(config: Config, environment: dict[str, str]) -> None:
    provider = config["provider"]
    assert re.fullmatch(r"[a-z]+-[a-z]+-\d", provider["region"])
    assert provider["availability_zone"].startswith(provider["region"])
    assert f".efs.{provider['region']}." in environment["EFS"]
    for node in config["available_node_types"].values():
        assert node["node_config"].keys() >= {"InstanceType", "ImageId", "SecurityGroupIds"}


def test_what_is_to_be_replaced_stands_at_the_top_only(config: Config) -> None:
    top, rest = PATH.read_text(encoding="utf-8").split("# ---- Nothing below")
    assert top.count("-REPLACE") == 3
    assert "REPLACE" not in rest
    assert yaml.safe_load(top).keys() == {"metadata"}


def test_packages_are_installed_in_the_pinned_versions(config: Config) -> None:
    installs = words(config, "pip install")
    assert any("-e" in install and "~/fope-lab[all]" in install for install in installs)
    for install in installs:
        assert install[install.index("-c") + 1] == "~/fope-lab/constraints.txt"
    mounts = config["file_mounts"]
    assert mounts["~/fope-lab/constraints.txt"] == "constraints.txt"
    assert mounts["~/fope-lab/pyproject.toml"] == "pyproject.toml"


def test_the_mounted_files_are_there(config: Config) -> None:
    mounts = dict(config["file_mounts"])
    assert mounts.pop("~/.ray/auth_token") == "~/.ray/auth_token"
    for remote, local in mounts.items():
        assert remote == f"~/fope-lab/{local}"
        assert (REPOSITORY / local).exists(), local


def test_every_node_has_the_store_the_tracking_and_the_token(
    config: Config, environment: dict[str, str]
) -> None:
    store = Path(environment["FOPE_LAB_STORE"])
    mount = next(c for c in config["setup_commands"] if "sudo mount" in c)
    assert f"sudo mount {store.parent};" in mount
    assert environment["RAY_AUTH_MODE"] == "token"
    [server] = words(config, "mlflow server")
    host, port = (server[server.index(f"--{name}") + 1] for name in ("host", "port"))
    assert environment["MLFLOW_TRACKING_URI"] == f"http://{host}:{port}"
    for command in commands(config):
        if "ray start" in command:
            assert command.startswith(". ~/cluster.env;")


def test_nothing_listens_on_an_open_interface(config: Config) -> None:
    [server] = words(config, "mlflow server")
    assert server[server.index("--host") + 1] == "127.0.0.1"
    [start] = [start for start in words(config, "ray start") if "--head" in start]
    assert "--dashboard-host=127.0.0.1" in start


def test_the_installed_versions_know_every_option(config: Config) -> None:
    from mlflow.cli import server
    from ray.scripts.scripts import start

    def check(program: click.Command, call: list[str]) -> None:
        program.make_parser(click.Context(program)).parse_args(call)

    programs: list[tuple[str, click.Command]] = [("mlflow server", server), ("ray start", start)]
    for name, program in programs:
        calls = words(config, name)
        assert calls
        for call in calls:
            check(program, call)
        with pytest.raises(click.NoSuchOption):
            check(program, [*calls[0], "--no-such-option"])


def test_the_shell_understands_every_command(config: Config) -> None:
    for command in commands(config):
        # Ray wraps a command like this.
        shell = ["bash", "-n", "-c", f"true && ({command})"]
        assert not subprocess.run(shell, capture_output=True, check=True).stderr, command
