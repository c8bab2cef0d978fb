"""A Ray cluster of several nodes on this machine, all on the loopback address.

The tests of this folder run only if LMEVAL_TEST_RAY is 1 (`make test-ray`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if os.environ.get("LMEVAL_TEST_RAY") == "1" else ["test_*.py"]

#: Lost nodes are noticed within two seconds, instead of half a minute.
_FAST = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


class Nodes:
    """The nodes of a cluster: a head without processors, and others that tests add and kill."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "num_gpus": 0, "_system_config": _FAST, **_SMALL},
        )
        self.address = str(self._cluster.address)
        self.nodes: list[Any] = []
        self._addresses = itertools.count(10)

    def add(self, cpus: int = 2) -> Any:
        """Starts a node with an address of its own, so that no driver connects through it."""
        address = f"127.0.0.{next(self._addresses)}"
        added = self._cluster.add_node(num_cpus=cpus, num_gpus=0, node_ip_address=address, **_SMALL)
        self.nodes.append(added)
        return self.nodes[-1]

    def kill(self, node: Any) -> None:
        """Kills the processes of a node, like `kill -9`."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


_SMALL = {"object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="session", autouse=True)
def _ray_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets the processes of the nodes import this package and its tests."""
    root = str(Path(__file__).parents[2])
    settings = {
        "PYTHONPATH": root,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_infeasible_task_early_exit": "0",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def all_nodes() -> Iterator[Nodes]:
    """A cluster without workers."""
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture
def cluster(all_nodes: Nodes) -> Nodes:
    """A cluster of two nodes with two processors each; a test may kill nodes and add others."""
    while len(all_nodes.nodes) < 2:
        all_nodes.add()
    return all_nodes
