"""Shapes of what is answered about a standby.

Room: http. As shapes.py: for the API's description; what a value may be is checked by the broker.
See: routes/standby.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StandbyShown(BaseModel):
    """Which part of two sites a broker has, and of a standby how far it is."""

    model_config = ConfigDict(extra="allow")

    state: Literal["active", "following", "promoting"]
    standby: str = Field(default="", description="The standby's id.")
    url: str = Field(default="", description="Where the archive is that it follows.")
    behind_ms: int = Field(
        default=0, description="For how long it has not seen the end of the archive."
    )
    as_of_ms: int = Field(
        default=0, description="It has all that was acknowledged by then, in ms since 1970, UTC."
    )
    trouble: str = Field(default="", description="What keeps it from following.")


class PromotionShown(BaseModel):
    """A promotion that is done."""

    state: Literal["active"]
    as_of_ms: int = Field(
        description="All that the other broker acknowledged by then is here, in ms since 1970, UTC."
    )
    took_ms: int = Field(description="How long it took until all was served, in milliseconds.")
