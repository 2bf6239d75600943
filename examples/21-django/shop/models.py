"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order, and how far it is."""

    item = models.TextField()
    state = models.TextField(default="ordered")
