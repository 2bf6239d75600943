"""The settings: what matters here are the outbox and the broker."""

import os
from pathlib import Path

SECRET_KEY = "of an example"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop", "dejaqueue.outbox.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parents[1] / "shop.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DEJAQ = {"url": os.environ.get("DEJAQ_URL", "dejaq://localhost:7464")}
