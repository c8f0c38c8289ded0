"""CLIP: images and texts as vectors of one space (Radford et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.tokens import as_tokens
from cubepy.models.architectures.vision.layers import LayerConfig, PreNormLayer, of_length_one
from cubepy.models.architectures.vision.preparing import Prepared
from cubepy.models.architectures.vision.transformer import VisionConfig, VisionTransformer
from cubepy.models.repeated_calls import RepeatedCalls
from cubepy.models.tokenized import Tokenized
from cubepy.nn import Embedding, LayerNorm, Linear, ModuleList, Parameter, init
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor


@dataclass(frozen=True)
class ClipTextConfig:
    """What the tower of texts is made of.

    Attributes:
        layer: of each layer.
        layers: how many.
        vocabulary: tokens that there are.
        context: tokens of a text at most.
        end: the token whose vector is that of the text; 2: the largest token (files of 2021).
        outputs: of the projection, 0: there is none.
    """

    layer: LayerConfig
    layers: int
    vocabulary: int
    context: int
    end: int
    outputs: int = 0


class ClipText(RepeatedCalls, Tokenized):
    """Tokens -> a vector of each text.

    Example:
        >>> layer = LayerConfig(8, 2, 16, causal=True)
        >>> ClipText(ClipTextConfig(layer, 1, 20, 10, end=19, outputs=4))([[3, 5, 19]]).shape
        (1, 4)
    """

    def __init__(self, c: ClipTextConfig) -> None:
        super().__init__()
        width = c.layer.width
        self.config = c
        self.words, self.positions = Embedding(c.vocabulary, width), Embedding(c.context, width)
        self.layers = ModuleList(PreNormLayer(c.layer) for _ in range(c.layers))
        self.norm = LayerNorm(width, c.layer.eps)
        self.head = Linear(width, c.outputs, bias=False) if c.outputs else None

    def forward(self, tokens: Any) -> Tensor:
        """(B, outputs): the vector of the token that ends each text, projected.

        Args:
            tokens: integers (B, L); what follows the end of a text is not seen.

        Raises:
            OutOfBoundsError: more tokens than positions, or tokens that there are not.
        """
        tokens = as_tokens(tokens, self.words.weight.device)
        last = tokens if self.config.end == 2 else (tokens == self.config.end).astype(cb.i32)
        ends = last.argmax(-1)
        at = as_tensor(np.arange(tokens.shape[0])).to(tokens.device)
        found = self.hidden(tokens)[at, ends]
        return found if self.head is None else self.head(found)

    def hidden(self, tokens: Any) -> Tensor:
        """A vector of each token after the last norm, (B, L, width)."""
        tokens = as_tokens(tokens, self.words.weight.device)
        rows = as_tensor(np.arange(tokens.shape[1])).to(tokens.device)
        x = self.words(tokens).astype(cb.f32) + self.positions(rows)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]

    def tokens_of(self, texts: Any, owner: Tokenized | None = None) -> np.ndarray:
        """Texts, or lists of tokens, as one array; what is too long is cut, its last token stays.

        Raises:
            ArgumentError: what is neither, or texts without a tokenizer.
        """
        if not isinstance(texts, Sequence) or isinstance(texts, str) or not len(texts):
            raise ArgumentError(f"texts are a list of texts or of tokens, not {shown(texts)}")
        c, owner = self.config, owner or self
        rows = [
            owner.needed_tokenizer().encode(t) if isinstance(t, str) else list(t) for t in texts
        ]
        if not all(rows):
            raise ArgumentError("a text needs at least one token")
        rows = [r if len(r) <= c.context else [*r[: c.context - 1], r[-1]] for r in rows]
        filler = 0 if c.end == 2 else c.end
        longest = max(map(len, rows))
        return np.array([[*r, *[filler] * (longest - len(r))] for r in rows], np.int64)

    def embed(
        self, texts: Any, *, normalize: bool = False, owner: Tokenized | None = None
    ) -> np.ndarray:
        """A vector for each text, of the token that ends it: (texts, outputs) f32.

        Args:
            texts: a list of texts, or of lists of tokens; one text gives one vector.
            normalize: whether vectors have length 1.
            owner: whose tokenizer it is; the model itself by default.
        """
        single = isinstance(texts, str)
        with cb.no_grad():
            found = self(self.tokens_of([texts] if single else texts, owner)).numpy()
        found = of_length_one(found) if normalize else found
        return found[0] if single else found


class Clip(RepeatedCalls, Tokenized, Prepared):
    """A tower of images and one of texts.

    Example:
        >>> layer = LayerConfig(8, 2, 16)
        >>> image = VisionConfig(layer, 1, (8, 8), (4, 4), head="projection", outputs=6)
        >>> model = Clip(image, ClipTextConfig(layer, 1, 20, 10, end=19, outputs=6))
        >>> model(np.zeros((3, 3, 8, 8), np.float32), [[1, 19], [2, 19]]).shape
        (3, 2)
    """

    def __init__(self, image: VisionConfig, text: ClipTextConfig) -> None:
        super().__init__()
        self.image, self.text = VisionTransformer(image), ClipText(text)
        self.log_scale = Parameter(init.constant((), 2.6592))

    def forward(self, pixels: Any, tokens: Any) -> Tensor:
        """How well each text fits each image, (images, texts); a softmax along texts gives shares.

        Args:
            pixels: (images, channels, height, width).
            tokens: integers (texts, L).
        """
        images, texts = F.normalize(self.image(pixels)), F.normalize(self.text(tokens))
        return (images @ texts.T) * self.log_scale.exp()

    def embed(self, texts: Any, *, normalize: bool = True) -> np.ndarray:
        """A vector for each text, of length 1 unless told otherwise; one text gives one vector."""
        return self.text.embed(texts, normalize=normalize, owner=self)

    def embed_images(self, pixels: Any, *, normalize: bool = True) -> np.ndarray:
        """A vector for each image, of length 1 unless told otherwise."""
        return self.image.embed(pixels, normalize=normalize)
