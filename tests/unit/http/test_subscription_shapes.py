"""The description of subscriptions names what there is."""

from __future__ import annotations

from dejaqueue.http.subscription_shapes import SubscriptionSettings
from dejaqueue.subscriptions import SETTINGS


def test_each_setting_is_described() -> None:
    assert tuple(SubscriptionSettings.model_fields) == SETTINGS
