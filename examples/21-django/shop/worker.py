"""What `dejaq worker shop.worker:app` loads: Django first, then the tasks."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.tasks import app  # noqa: E402

__all__ = ["app"]
