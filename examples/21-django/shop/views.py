"""An order and the task that packs it are one transaction."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from dejaqueue.outbox.django import DjangoOutbox
from shop.models import Order
from shop.tasks import pack

outbox = DjangoOutbox()


@csrf_exempt
@require_POST
def order(request: HttpRequest) -> JsonResponse:
    """Both count, or neither: an order without an item is taken back, and never packed."""
    try:
        with transaction.atomic():
            made = Order.objects.create(item=request.POST.get("item", ""))
            outbox.send(**pack.message(made.pk))
            if not made.item:
                raise ValueError("nothing was ordered")
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse({"order": made.pk}, status=201)


@require_GET
def look(request: HttpRequest, number: int) -> JsonResponse:
    """How far an order is."""
    found = get_object_or_404(Order, pk=number)
    return JsonResponse({"item": found.item, "state": found.state})
