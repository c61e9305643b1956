"""The nodes with the best idle devices for a task, found without a loop over the nodes.

By `core.cells.closeness` the idle devices of a node are an offer: how good the best of them are, for each number of devices.
There are few different offers (21 for nodes with two sockets of two switches of two GPUs), and the nodes of each offer are a
set of bits. So the best nodes for a task are found by a look at each offer, best first.
"""

from collections.abc import Iterator, Mapping

from scheduler_service.core.cells.closeness import DeviceTree, Key, Offer, choices, device_tree
from scheduler_service.core.model import Node, NodeDevice
from scheduler_service.core.model.values import Mask

_KNOWN = 4096
"""Number of offers to remember even if no node has them any more: mostly some node will soon have them again."""


class IdleGroups:
    """An index that follows from the trees of nodes and their idle devices. Brought up to date on access."""

    __slots__ = ("_nodes", "_offers", "_orders", "_trees", "stale")

    def __init__(self) -> None:
        self.stale: set[int] = set()
        """Nodes whose idle devices, or whose tree, have changed."""
        self._trees: dict[int, DeviceTree] = {}
        """Trees of the nodes that were asked about."""
        self._offers: dict[int, Offer] = {}
        """Node -> its offer."""
        self._nodes: dict[Offer, int] = {}
        """Offer -> the nodes that have it; bit i is node i."""
        self._orders: dict[int, list[tuple[Key, list[Offer]]]] = {}
        """Number of devices -> the offers with at least as many, best first. Cleared when a new offer appears."""

    def forget_tree(self, node: int) -> None:
        """Forgets the node's tree, because its levels or its devices have changed."""
        self._trees.pop(node, None)
        self.stale.add(node)

    def tree(self, node: int, nodes: Mapping[int, Node], devices: Mapping[tuple[int, int], NodeDevice]) -> DeviceTree:
        """Return how close the devices of the node are to each other."""
        tree = self._trees.get(node)
        if tree is None:
            row, found, index = nodes.get(node), list[NodeDevice](), 0
            while (device := devices.get((node, index))) is not None:
                found, index = [*found, device], index + 1
            levels, paths = () if row is None else row.levels, tuple(device.path for device in found)
            tree = self._trees[node] = device_tree(levels, paths, tuple(device.link_domain for device in found))
        return tree

    def update_offers(
        self, idle: Mapping[int, Mask], nodes: Mapping[int, Node], devices: Mapping[tuple[int, int], NodeDevice]
    ) -> None:
        trees, offers, having = self._trees, self._offers, self._nodes
        for node in self.stale:  # written out: this is done for each launch
            mask = idle.get(node, 0)
            tree = trees.get(node) or self.tree(node, nodes, devices)
            new, old = (tree.known.get(mask) or choices(tree, mask)).offer, offers.get(node)
            if new is not old:
                offers[node], bit = new, 1 << node
                if old is not None:
                    having[old] ^= bit
                if new in having:
                    having[new] |= bit
                else:
                    having[new] = bit
                    self._orders.clear()
        self.stale.clear()
        if len(having) > _KNOWN:
            self._nodes = {offer: bits for offer, bits in self._nodes.items() if bits}
            self._orders.clear()

    def best_first(self, count: int, may: int) -> Iterator[tuple[Key, int]]:
        """Yield those of these nodes (bit i is node i) that have this many idle devices, best first: nodes whose best devices
        are equally good come together."""
        nodes = self._nodes
        for key, offers in self._order(count):
            bits = 0
            for offer in offers:
                bits |= nodes[offer]
            if bits := bits & may:
                yield key, bits

    def _order(self, count: int) -> list[tuple[Key, list[Offer]]]:
        order = self._orders.get(count)
        if order is None:
            by_key: dict[Key, list[Offer]] = {}
            for offer in self._nodes:
                if count < len(offer.keys):
                    by_key.setdefault(offer.keys[count], []).append(offer)
            order = self._orders[count] = sorted(by_key.items())
        return order

    def snapshot(self) -> dict[int, tuple[Key, ...]]:
        return {node: offer.keys for node, offer in self._offers.items() if len(offer.keys) > 1}
