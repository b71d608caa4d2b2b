"""Sluice's native protocol: `Client` waits, `AsyncClient` is asyncio's."""

from .aio import AsyncClient, AsyncStream
from .blocking import Client, Stream
from .errors import SluiceError
from .options import Chat, Constraint, Item, Prompt
from .results import Answer, Embedding, Info, Outputs, Piece, Scores
from .tensors import Tensor

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncStream",
    "Chat",
    "Client",
    "Constraint",
    "Embedding",
    "Info",
    "Item",
    "Outputs",
    "Piece",
    "Prompt",
    "Scores",
    "SluiceError",
    "Stream",
    "Tensor",
]
