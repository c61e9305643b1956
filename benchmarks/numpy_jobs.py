"""Forty NumPy programs that count their steps: `python -m benchmarks.numpy_jobs NAME TOTAL`; with "time" for TOTAL one only
measures a step.

Twenty kinds of work of two sizes each. Some are matrix products, which use several threads; others use one, whatever they get.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from client_sdk import training

Step = Callable[[], object]
rng = np.random.default_rng(7)


def matmul(n: int) -> Step:
    a, b = rng.random((n, n)), rng.random((n, n))
    return lambda: a @ b


def half_precision_product(n: int) -> Step:
    a, b = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
    return lambda: a @ b


def network(n: int) -> Step:
    """A layer forwards and backwards, and a step of gradient descent."""
    x, y, w, v = rng.random((256, n)), rng.random((256, 10)), rng.random((n, n)) / n, rng.random((n, 10)) / n

    def step() -> None:
        h = np.maximum(x @ w, 0)
        error = h @ v - y
        gradient = error @ v.T * (h > 0)
        v.__isub__(1e-4 * h.T @ error)
        w.__isub__(1e-4 * x.T @ gradient)

    return step


def convolution(n: int) -> Step:
    image, kernel = rng.random((n, n)), rng.random((5, 5))
    windows = np.lib.stride_tricks.sliding_window_view(image, (5, 5))
    return lambda: np.einsum("ijkl,kl->ij", windows, kernel)


def attention(n: int) -> Step:
    q, k, v = (rng.random((n, 64)) for _ in range(3))

    def step() -> None:
        scores = q @ k.T / 8
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        _ = scores / scores.sum(axis=1, keepdims=True) @ v

    return step


def cluster_means(n: int) -> Step:
    points, centres = rng.random((n, 16)), rng.random((32, 16))

    def step() -> None:
        nearest = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        for label in range(32):
            if (mine := points[nearest == label]).size:
                centres[label] = mine.mean(axis=0)

    return step


def heat(n: int) -> Step:
    field = rng.random((n, n))

    def step() -> None:
        inner = field[1:-1, :-2] + field[1:-1, 2:] + field[:-2, 1:-1] + field[2:, 1:-1]
        field[1:-1, 1:-1] = inner / 4

    return step


def game_of_life(n: int) -> Step:
    board = rng.random((n, n)) < 0.3

    def step() -> None:
        around = sum(np.roll(board, (i, j), (0, 1)).astype(np.int8) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        board[:] = (around == 3) | (board & (around == 2))

    return step


def n_body(n: int) -> Step:
    where, speed = rng.random((n, 3)), np.zeros((n, 3))

    def step() -> None:
        apart = where[None] - where[:, None]
        near = ((apart**2).sum(axis=2) + 1e-3) ** -1.5
        speed.__iadd__(1e-6 * (apart * near[:, :, None]).sum(axis=1))
        where.__iadd__(1e-3 * speed)

    return step


def page_rank(n: int) -> Step:
    links = (rng.random((n, n)) < 0.01) + 1e-9
    links /= links.sum(axis=0)
    rank = np.full(n, 1 / n)
    return lambda: np.copyto(rank, 0.85 * links @ rank + 0.15 / n)


def sort(n: int) -> Step:
    values = rng.random(n)
    return lambda: np.sort(values)


def ranks(n: int) -> Step:
    values = rng.integers(0, n, n)
    return lambda: np.unique(values, return_inverse=True)


def fourier(n: int) -> Step:
    image = rng.random((n, n))
    return lambda: np.fft.irfft2(np.fft.rfft2(image))


def singular_values(n: int) -> Step:
    matrix = rng.random((n, n))
    return lambda: np.linalg.svd(matrix, compute_uv=False)


def eigenvalues(n: int) -> Step:
    matrix = rng.random((n, n))
    matrix += matrix.T
    return lambda: np.linalg.eigvalsh(matrix)


def solve(n: int) -> Step:
    matrix, right = rng.random((n, n)) + n * np.eye(n), rng.random(n)
    return lambda: np.linalg.solve(matrix, right)


def cholesky(n: int) -> Step:
    matrix = rng.random((n, n))
    matrix = matrix @ matrix.T + n * np.eye(n)
    return lambda: np.linalg.cholesky(matrix)


def elementwise(n: int) -> Step:
    values = rng.random(n)
    return lambda: np.exp(np.sin(values)) + np.sqrt(values)


def histogram(n: int) -> Step:
    values = rng.normal(size=n)
    return lambda: np.histogram(values, bins=100)


def monte_carlo(n: int) -> Step:
    return lambda: (rng.random(n) ** 2 + rng.random(n) ** 2 < 1).mean()


_SIZES: dict[Callable[[int], Step], tuple[int, int]] = {
    matmul: (192, 448),
    half_precision_product: (256, 640),
    network: (128, 384),
    convolution: (128, 320),
    attention: (256, 640),
    cluster_means: (1000, 4000),
    heat: (300, 900),
    game_of_life: (200, 500),
    n_body: (100, 240),
    page_rank: (500, 1500),
    sort: (50_000, 300_000),
    ranks: (30_000, 150_000),
    fourier: (256, 640),
    singular_values: (60, 140),
    eigenvalues: (80, 180),
    solve: (150, 350),
    cholesky: (200, 450),
    elementwise: (50_000, 400_000),
    histogram: (50_000, 250_000),
    monte_carlo: (100_000, 500_000),
}
JOBS: dict[str, Callable[[], Step]] = {
    f"{make.__name__}-{size}": partial(make, size) for make, sizes in _SIZES.items() for size in sizes
}


def seconds_of_a_step(step: Step) -> float:
    """Return the mean time of a step, over a third of a second after the first step."""
    step()
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < 0.3:
        step()
        count += 1
    return took / count


def main(name: str, total: str) -> None:
    step = JOBS[name]()
    if total == "time":
        print(seconds_of_a_step(step))
        return
    counter = training.steps(total=int(total))
    for _ in range(int(total)):
        step()
        counter.advance()


if __name__ == "__main__":
    main(*sys.argv[1:])
