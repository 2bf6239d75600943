"""The first tables of the shop."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the orders."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("item", models.TextField()),
                ("state", models.TextField(default="ordered")),
            ],
        ),
    )
