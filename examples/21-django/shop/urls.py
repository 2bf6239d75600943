"""Which address is which view."""

from django.urls import path

from shop.views import look, order

urlpatterns = [path("orders", order), path("orders/<int:number>", look)]
